// SPDX-License-Identifier: GPL-2.0-only
/* CPUs, and which thread is protected by which lock. */
#include <linux/cpumask.h>

#include "model/core.h"

DEFINE_PER_CPU_ALIGNED(struct xk_core, xk_cores);
bool xk_several_policies;

void xk_cores_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		raw_spin_lock_init(&per_cpu_ptr(&xk_cores, cpu)->lock);
}

/* A thread changes its core with the lock of the new one. It is in no queue then. */
struct xk_core *xk_core_lock(const struct xk_thread *thread)
{
	struct xk_core *core;
	int cpu;

	for (;;) {
		cpu = READ_ONCE(thread->core);
		core = per_cpu_ptr(&xk_cores, cpu);
		raw_spin_lock(&core->lock);
		if (likely(READ_ONCE(thread->core) == cpu))
			return core;
		raw_spin_unlock(&core->lock);
	}
}

void xk_core_charge(struct xk_thread *thread, struct xk_policy_core *own)
{
	u64 ran = thread->task->se.sum_exec_runtime - thread->charged;

	thread->charged = thread->task->se.sum_exec_runtime;
	/* Nothing was counted while there was one policy only. */
	ran = min(ran, thread->policy->slice_ns);
	own->time += ran * XK_DEFAULT_WEIGHT / READ_ONCE(thread->policy->weight);
}
