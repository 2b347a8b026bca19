// SPDX-License-Identifier: GPL-2.0-only
/*
 * One queue for each core, in the order of arrival. A thread stays on the core that its number
 * gives, as far as its affinity allows, and no core takes threads from another.
 */
#include <linux/cpumask.h>

#include "xk_sched.h"

struct fifo_core {
	struct xk_queue ready;
};

static struct xk_queue *ready(struct xk_sched_policy *policy, int core)
{
	struct fifo_core *own = xk_core_data(policy, core);

	return &own->ready;
}

static int init(struct xk_sched_policy *policy)
{
	int core;

	for_each_possible_cpu(core)
		xk_queue_init(ready(policy, core), policy, core, XK_FIFO, NULL);
	return 0;
}

static int new_prepare(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	const struct cpumask *cpus = xk_policy_cpus(policy);
	/* With more than 64 CPUs, a change of the set may be half done, and the set empty. */
	unsigned int nr = cpumask_weight(cpus) ?: 1;
	unsigned int wanted = cpumask_nth(thread->task->pid % nr, cpus);

	return wanted < nr_cpu_ids && xk_allowed(thread, wanted) ? wanted : core;
}

static void place(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	xk_change_state(thread, XK_READY, core, ready(policy, core));
}

static void schedule_next(struct xk_sched_policy *policy, int core)
{
	struct xk_thread *next = xk_queue_first(ready(policy, core));

	if (next)
		xk_change_state(next, XK_RUNNING, core, NULL);
}

/* What is not here has the default, which costs less than an event that does the same. */
static const struct xk_sched_events events = {
	.init = init,
	.new_prepare = new_prepare,
	.unblock_place = place,
	.schedule = schedule_next,
};

static struct xk_sched_policy fifo_policy = {
	.name = "fifo",
	.owner = THIS_MODULE,
	.events = &events,
	.core_size = sizeof(struct fifo_core),
	.eager = true,
};

module_xk_policy(fifo_policy);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Per-core FIFO, a policy of xk_sched");
