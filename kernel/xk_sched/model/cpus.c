// SPDX-License-Identifier: GPL-2.0-only
/* The CPUs of a policy. policy/cpus.c changes them. */
#include <linux/slab.h>

#include "model/cpus.h"

int xk_cpus_init(struct xk_sched_policy *policy)
{
	policy->confined = false;
	policy->stranded = false;
	policy->wanted = kzalloc(cpumask_size(), GFP_KERNEL);
	policy->cpus = kzalloc(cpumask_size(), GFP_KERNEL);
	policy->next_cpus = kzalloc(cpumask_size(), GFP_KERNEL);
	if (!policy->wanted || !policy->cpus || !policy->next_cpus) {
		xk_cpus_free(policy);
		return -ENOMEM;
	}
	cpumask_copy(policy->wanted, cpu_possible_mask);
	cpumask_copy(policy->cpus, cpu_online_mask);
	return 0;
}

void xk_cpus_free(struct xk_sched_policy *policy)
{
	kfree(policy->wanted);
	kfree(policy->cpus);
	kfree(policy->next_cpus);
	policy->wanted = NULL;
	policy->cpus = NULL;
	policy->next_cpus = NULL;
}

/* Not always the first one, so that threads spread. */
static int any_of(const struct xk_thread *thread, int core)
{
	unsigned int other = cpumask_any_and_distribute(xk_policy_cpus(thread->policy),
							thread->task->cpus_ptr);

	return other < nr_cpu_ids ? other : core;
}

int xk_home(const struct xk_thread *thread, int core)
{
	return likely(xk_is_home(thread, core)) ? core : any_of(thread, core);
}

int xk_home_but(const struct xk_thread *thread, int core, int gone)
{
	int other;

	if (core != gone || thread->task->migration_disabled)
		return xk_home(thread, core);
	other = any_of(thread, gone);
	/* The kernel takes care of the run queue in which the thread is. */
	return other == gone ? task_cpu(thread->task) : other;
}
