// SPDX-License-Identifier: GPL-2.0-only
/* What sched_ext says about CPUs, as events of the policies. */
#include <linux/bitops.h>

#include "class/class.h"
#include "event/call.h"
#include "ext/kernel.h"
#include "model/core.h"
#include "policy/cpus.h"
#include "policy/list.h"
#include "policy/share.h"

/* Asks the policies with ready threads, first the one that has had least for its weight. */
static struct xk_thread *choose(struct xk_core *core, int cpu)
{
	struct xk_sched_policy *policy;
	struct xk_thread *thread;
	u32 mask = core->ready;
	int id;

	while (mask) {
		id = xk_share_first(core, mask, cpu);
		mask &= ~BIT(id);
		policy = READ_ONCE(xk_policies[id]);
		if (!policy || !READ_ONCE(policy->live))
			continue;
		thread = xk_call_schedule(policy, cpu);
		if (thread) {
			core->turn = (id + 1) % XK_MAX_POLICIES;
			return thread;
		}
	}
	return NULL;
}

static void search(int cpu)
{
	unsigned long mask = READ_ONCE(xk_policies_newly_idle);
	struct xk_sched_policy *policy;
	int id;

	for_each_set_bit(id, &mask, XK_MAX_POLICIES) {
		policy = READ_ONCE(xk_policies[id]);
		/* Without threads, there is none to steal. */
		if (policy && READ_ONCE(policy->live) && READ_ONCE(policy->nr_threads) &&
		    xk_policy_has(policy, cpu))
			xk_call_newly_idle(policy, cpu);
	}
}

/*
 * With the run queue lock. The thread is given to sched_ext with the lock of our queues, so that
 * nobody takes it out of its queue and puts it back in between.
 */
void xk_class_dispatch(s32 cpu, struct task_struct *prev)
{
	struct xk_core *core = per_cpu_ptr(&xk_cores, cpu);
	struct xk_thread *thread;

	/* Our class has no thread left on this CPU, so who was chosen early has run. */
	core->next = NULL;
	if (!READ_ONCE(core->ready) && (prev || !READ_ONCE(xk_policies_newly_idle)))
		return;
	raw_spin_lock(&core->lock);
	thread = choose(core, cpu);
	if (!thread && !prev && !core->ready) {
		search(cpu);
		thread = choose(core, cpu);
	}
	if (thread)
		xk_ext_run(thread->task, thread->policy->slice_ns, 0);
	raw_spin_unlock(&core->lock);
}

/* Both may sleep. While a CPU is offline, sched_ext moves its threads itself. */
void xk_class_cpu_online(s32 cpu)
{
	struct xk_sched_policy *policy;
	int id;

	mutex_lock(&xk_policies_lock);
	xk_cpus_hotplug(cpu, true);
	for (id = 0; id < XK_MAX_POLICIES; id++) {
		policy = xk_policies[id];
		if (policy && policy->live && policy->events->core_entry)
			policy->events->core_entry(policy, cpu);
	}
	mutex_unlock(&xk_policies_lock);
}

void xk_class_cpu_offline(s32 cpu)
{
	struct xk_sched_policy *policy;
	int id;

	mutex_lock(&xk_policies_lock);
	xk_cpus_hotplug(cpu, false);
	for (id = 0; id < XK_MAX_POLICIES; id++) {
		policy = xk_policies[id];
		if (policy && policy->live && policy->events->core_exit)
			policy->events->core_exit(policy, cpu);
	}
	mutex_unlock(&xk_policies_lock);
}
