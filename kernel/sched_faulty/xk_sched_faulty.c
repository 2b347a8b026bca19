// SPDX-License-Identifier: GPL-2.0-only
/*
 * A policy that makes one mistake, for tests: the parameter `kind` selects which. Without a
 * mistake it is a FIFO.
 */
#include <linux/cpumask.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "xk_sched.h"

static char *kind = "none";
module_param(kind, charp, 0444);
MODULE_PARM_DESC(kind, "the mistake");

struct faulty_core {
	struct xk_queue ready;
	struct xk_queue raw;		/* never initialised */
};

/* The last thread that was placed: about to be changed by an event of another. */
static struct xk_thread *placed;
static unsigned int events_seen;

static bool is(const char *mistake)
{
	return !strcmp(kind, mistake);
}

static struct faulty_core *of(struct xk_sched_policy *policy, int core)
{
	return xk_core_data(policy, core);
}

static int other(int core)
{
	return core ? 0 : num_online_cpus() - 1;
}

static int forbidden(struct xk_thread *thread, int core)
{
	int cpu;

	for_each_online_cpu(cpu)
		if (!xk_allowed(thread, cpu))
			return cpu;
	return core;
}

static int faulty_init(struct xk_sched_policy *policy)
{
	int core;

	if (is("init"))
		return -EIO;
	for_each_possible_cpu(core)
		xk_queue_init(&of(policy, core)->ready, policy, core, XK_FIFO, NULL);
	return 0;
}

static int prepare(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	if (is("core_999"))
		return 999;
	if (is("core_negative"))
		return -1;
	if (is("core_forbidden"))
		return forbidden(thread, core);
	if (is("change_in_prepare"))
		xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
	return core;
}

static void place(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	struct xk_queue *ready = &of(policy, core)->ready;

	if (is("place_as_running"))
		xk_change_state(thread, XK_RUNNING, core, NULL);
	else if (is("place_as_blocked"))
		xk_change_state(thread, XK_BLOCKED, core, NULL);
	else if (is("place_nowhere"))
		xk_change_state(thread, XK_READY, core, NULL);
	else if (is("place_on_other_core"))
		xk_change_state(thread, XK_READY, other(core), &of(policy, other(core))->ready);
	else if (is("queue_of_other_core"))
		xk_change_state(thread, XK_READY, core, &of(policy, other(core))->ready);
	else if (is("queue_not_initialised"))
		xk_change_state(thread, XK_READY, core, &of(policy, core)->raw);
	else
		xk_change_state(thread, XK_READY, core, ready);
	if (is("queue_twice"))
		xk_change_state(thread, XK_READY, core, ready);
}

static void new_place(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	if (is("forget_new_place"))
		return;
	place(policy, thread, core);
	placed = thread;
}

static void unblock_place(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	if (!is("forget_unblock_place"))
		place(policy, thread, core);
}

static void unblock_end(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	if (is("change_in_end"))
		xk_change_state(thread, XK_RUNNING, core, NULL);
}

static void tick(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	if (is("tick_without_queue"))
		xk_change_state(thread, XK_READY_TICK, core, NULL);
	if (is("block_in_tick"))
		xk_change_state(thread, XK_BLOCKED, core, NULL);
	if (is("ready_in_tick"))
		xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
}

static void stop(struct xk_sched_policy *policy, struct xk_thread *thread, int core,
		 enum xk_stop why)
{
	if (is("forget_yield"))
		return;
	if (is("yield_as_blocked"))
		xk_change_state(thread, XK_BLOCKED, core, NULL);
	xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
}

static void block(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	if (is("forget_block"))
		return;
	if (is("block_as_ready"))
		xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
	if (is("block_other_thread") && READ_ONCE(placed) && placed != thread)
		xk_change_state(placed, XK_BLOCKED, core, NULL);
	xk_change_state(thread, XK_BLOCKED, core, NULL);
}

static void terminate(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	if (placed == thread)
		placed = NULL;
	if (is("forget_terminate"))
		return;
	if (is("terminate_as_ready"))
		xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
	xk_change_state(thread, XK_TERMINATED, core, NULL);
}

static void schedule_next(struct xk_sched_policy *policy, int core)
{
	struct xk_queue *ready = &of(policy, core)->ready;
	struct xk_thread *next = xk_queue_first(ready);

	/* The first threads run, so that it does not stop before anything happens. */
	if (!next || (is("lose") && ++events_seen > 20))
		return;
	if (is("schedule_as_blocked"))
		xk_change_state(next, XK_BLOCKED, core, NULL);
	xk_change_state(next, XK_RUNNING, core, NULL);
	if (is("schedule_two")) {
		next = xk_queue_first(ready);
		if (next)
			xk_change_state(next, XK_RUNNING, core, NULL);
	}
	if (is("schedule_again"))
		xk_change_state(next, XK_RUNNING, core, NULL);
}

static void newly_idle(struct xk_sched_policy *policy, int core)
{
	if (is("steal_from_itself"))
		xk_steal(&of(policy, core)->ready, &of(policy, core)->ready);
	if (is("steal_for_other_core"))
		xk_steal(&of(policy, core)->ready, &of(policy, other(core))->ready);
}

static const struct xk_sched_events events = {
	.init = faulty_init,
	.new_prepare = prepare,
	.unblock_prepare = prepare,
	.new_place = new_place,
	.unblock_place = unblock_place,
	.unblock_end = unblock_end,
	.tick = tick,
	.yield = stop,
	.block = block,
	.terminate = terminate,
	.schedule = schedule_next,
	.newly_idle = newly_idle,
};

static struct xk_sched_policy faulty = {
	.name = "faulty",
	.owner = THIS_MODULE,
	.events = &events,
	.core_size = sizeof(struct faulty_core),
};

static void change(struct work_struct *work)
{
	struct xk_thread *thread = READ_ONCE(placed);

	if (thread)
		xk_change_state(thread, XK_READY, thread->core,
				&of(&faulty, thread->core)->ready);
	if (READ_ONCE(faulty.live))
		schedule_delayed_work(to_delayed_work(work), 1);
}

static DECLARE_DELAYED_WORK(changing, change);

static int __init xk_sched_faulty_init(void)
{
	int ret = xk_sched_register(&faulty);

	if (!ret && is("change_outside"))
		schedule_delayed_work(&changing, 1);
	return ret;
}

static void __exit xk_sched_faulty_exit(void)
{
	cancel_delayed_work_sync(&changing);
	xk_sched_unregister(&faulty);
}

module_init(xk_sched_faulty_init);
module_exit(xk_sched_faulty_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A policy of xk_sched that makes mistakes, for tests");
