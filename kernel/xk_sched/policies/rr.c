// SPDX-License-Identifier: GPL-2.0-only
/*
 * Round robin: each thread runs for one tick while others wait. A thread that wakes gets an idle
 * core if there is one, and a core without work takes threads that wait on others.
 */
#include <linux/cpumask.h>

#include "xk_sched.h"

struct rr_core {
	struct xk_queue ready;
};

static struct xk_queue *ready(struct xk_sched_policy *policy, int core)
{
	struct rr_core *own = xk_core_data(policy, core);

	return &own->ready;
}

static int rr_init(struct xk_sched_policy *policy)
{
	int core;

	for_each_possible_cpu(core)
		xk_queue_init(ready(policy, core), policy, core, XK_FIFO, NULL);
	return 0;
}

static int prepare(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	return xk_idle_core(thread, core);
}

static void place(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	xk_change_state(thread, XK_READY, core, ready(policy, core));
}

static void tick(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	if (ready(policy, core)->nr)
		xk_change_state(thread, XK_READY_TICK, core, ready(policy, core));
}

static void stop(struct xk_sched_policy *policy, struct xk_thread *thread, int core,
		 enum xk_stop why)
{
	xk_change_state(thread, XK_READY, core, ready(policy, core));
}

static void block(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	xk_change_state(thread, XK_BLOCKED, core, NULL);
}

static void terminate(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	xk_change_state(thread, XK_TERMINATED, core, NULL);
}

static void schedule_next(struct xk_sched_policy *policy, int core)
{
	struct xk_thread *next = xk_queue_first(ready(policy, core));

	if (next)
		xk_change_state(next, XK_RUNNING, core, NULL);
}

static void newly_idle(struct xk_sched_policy *policy, int core)
{
	int other;

	for_each_cpu_wrap(other, cpu_online_mask, core + 1)
		if (other != core && xk_steal(ready(policy, other), ready(policy, core)))
			return;
}

/* It knows nothing of a thread but its queue. */
static int take_over(struct xk_sched_policy *policy, const struct xk_sched_policy *old)
{
	return 0;
}

static const struct xk_sched_events events = {
	.init = rr_init,
	.new_prepare = prepare,
	.unblock_prepare = prepare,
	.new_place = place,
	.unblock_place = place,
	.tick = tick,
	.yield = stop,
	.block = block,
	.terminate = terminate,
	.schedule = schedule_next,
	.newly_idle = newly_idle,
	.take_over = take_over,
};

static struct xk_sched_policy rr_policy = {
	.name = "rr",
	.owner = THIS_MODULE,
	.events = &events,
	.core_size = sizeof(struct rr_core),
};

module_xk_policy(rr_policy);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Round robin, a policy of xk_sched");
