// SPDX-License-Identifier: GPL-2.0-only
/*
 * Weighted fair: of the threads of a core, the one runs that has had least time for its weight,
 * which its nice value gives. A thread that wakes gets an idle core if there is one. It keeps what
 * it is ahead or behind, up to 4 ms.
 */
#include <linux/cpumask.h>
#include <linux/string.h>

#include "xk_sched.h"

/* What a thread that sleeps may save, or owe. */
#define MAX_AHEAD_NS ((s64)(4 * NSEC_PER_MSEC))
/* Ticks preempt earlier: when a slice is over, another thread runs even if it has had more. */
#define SLICE_NS (100 * NSEC_PER_MSEC)

static bool sorted_list;
module_param(sorted_list, bool, 0444);
MODULE_PARM_DESC(sorted_list, "keep threads in a list instead of a tree: for few threads");

struct weighted_thread {
	u64 time;	/* weighted; compared on one core only */
	s64 ahead;	/* of the core, when it blocked */
	u64 ran;	/* ns that are counted in `time` */
};

struct weighted_core {
	struct xk_queue ready;
	u64 time;	/* of the thread that was chosen last */
};

static struct weighted_core *of(struct xk_sched_policy *policy, int core)
{
	return xk_core_data(policy, core);
}

static bool before(const struct xk_thread *left, const struct xk_thread *right)
{
	const struct weighted_thread *a = xk_thread_data(left, const struct weighted_thread);
	const struct weighted_thread *b = xk_thread_data(right, const struct weighted_thread);

	return (s64)(a->time - b->time) < 0;
}

/* Adds the time that the thread has run since it was last counted. */
static struct weighted_thread *count(struct xk_thread *thread)
{
	struct weighted_thread *own = xk_thread_data(thread, struct weighted_thread);
	u64 ran = thread->task->se.sum_exec_runtime;

	own->time += (ran - own->ran) * 100 / max(thread->task->scx.weight, 1u);
	own->ran = ran;
	return own;
}

static int weighted_init(struct xk_sched_policy *policy)
{
	int core;

	for_each_possible_cpu(core)
		xk_queue_init(&of(policy, core)->ready, policy, core,
			      sorted_list ? XK_LIST : XK_RBTREE, before);
	return 0;
}

static int prepare(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	return xk_idle_core(thread, core);
}

static void new_place(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	struct weighted_thread *own = count(thread);

	own->time = of(policy, core)->time;
	xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
}

static void unblock_place(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	struct weighted_thread *own = count(thread);

	own->time = of(policy, core)->time + clamp(own->ahead, -MAX_AHEAD_NS, MAX_AHEAD_NS);
	xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
}

static void tick(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	struct xk_thread *next = xk_queue_first(&of(policy, core)->ready);

	count(thread);
	if (next && before(next, thread))
		xk_change_state(thread, XK_READY_TICK, core, &of(policy, core)->ready);
}

static void stop(struct xk_sched_policy *policy, struct xk_thread *thread, int core,
		 enum xk_stop why)
{
	count(thread);
	xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
}

static void block(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	struct weighted_thread *own = count(thread);

	own->ahead = own->time - of(policy, core)->time;
	xk_change_state(thread, XK_BLOCKED, core, NULL);
}

static void terminate(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	xk_change_state(thread, XK_TERMINATED, core, NULL);
}

static void schedule_next(struct xk_sched_policy *policy, int core)
{
	struct xk_thread *next = xk_queue_first(&of(policy, core)->ready);
	struct weighted_thread *own;

	if (!next)
		return;
	own = xk_thread_data(next, struct weighted_thread);
	if ((s64)(own->time - of(policy, core)->time) > 0)
		of(policy, core)->time = own->time;
	xk_change_state(next, XK_RUNNING, core, NULL);
}

/* Only from another version of this policy, whose data are the same. */
static int take_over(struct xk_sched_policy *policy, const struct xk_sched_policy *old)
{
	return strncmp(old->name, "weighted", strlen("weighted")) ? -EINVAL : 0;
}

static void adopt(struct xk_sched_policy *policy, struct xk_thread *thread, int core,
		  const struct xk_sched_policy *old)
{
	const struct weighted_core *before = per_cpu_ptr(old->core_data, core);

	/* The time of the thread is compared with it. */
	if ((s64)(before->time - of(policy, core)->time) > 0)
		of(policy, core)->time = before->time;
	if (thread->state == XK_MIGRATING)
		xk_thread_data(thread, struct weighted_thread)->ahead =
			xk_thread_data(thread, struct weighted_thread)->time - before->time;
}

static const struct xk_sched_events events = {
	.init = weighted_init,
	.new_prepare = prepare,
	.unblock_prepare = prepare,
	.new_place = new_place,
	.unblock_place = unblock_place,
	.tick = tick,
	.yield = stop,
	.block = block,
	.terminate = terminate,
	.schedule = schedule_next,
	.take_over = take_over,
	.adopt = adopt,
};

static struct xk_sched_policy weighted_policy = {
	.name = "weighted",
	.owner = THIS_MODULE,
	.events = &events,
	.slice_ns = SLICE_NS,
	.core_size = sizeof(struct weighted_core),
};

module_xk_policy(weighted_policy);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Weighted fair, a policy of xk_sched");
