// SPDX-License-Identifier: GPL-2.0-only
/*
 * A policy that makes one mistake, for tests: the parameter `kind` selects which. Without a
 * mistake it is a FIFO.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "xk_sched.h"

static char *kind = "none";
module_param(kind, charp, 0444);
MODULE_PARM_DESC(kind, "the mistake");

struct faulty_core {
	struct xk_queue ready;
	struct xk_queue raw;		/* never initialised */
	struct xk_queue ordered;
};

/* The last thread that was placed: about to be changed by an event of another. */
static struct xk_thread *placed;
static unsigned int events_seen;

static bool is(const char *mistake)
{
	return !strcmp(kind, mistake);
}

static bool is_in_adopt(void)
{
	return !strncmp(kind, "adopt_", strlen("adopt_"));
}

/* What a mistake may do in any event. */
static u64 *nowhere;
static unsigned int zero, quotient;
static struct xk_queue *heap;
static DEFINE_RAW_SPINLOCK(never_unlocked);

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

static void loop(void)
{
	for (;;)
		cpu_relax();
}

static bool order(const struct xk_thread *left, const struct xk_thread *right)
{
	if (is("loop_in_order"))
		loop();
	return false;
}

static int faulty_init(struct xk_sched_policy *policy)
{
	int core;

	if (is("init"))
		return -EIO;
	for_each_possible_cpu(core) {
		xk_queue_init(&of(policy, core)->ready, policy, core, XK_FIFO, NULL);
		xk_queue_init(&of(policy, core)->ordered, policy, core, XK_RBTREE, order);
	}
	if (is("queue_on_heap")) {
		heap = kzalloc(sizeof(*heap), GFP_KERNEL);
		if (heap)
			xk_queue_init(heap, policy, 0, XK_FIFO, NULL);
	}
	return 0;
}

static void faulty_exit(struct xk_sched_policy *policy)
{
	kfree(heap);
}

/* A mistake that is not about threads: `name` is of an event. Not in the first calls of it. */
static void fail_in(const char *name, struct xk_sched_policy *policy, int core)
{
	size_t length = strlen(name);

	if (strncmp(kind, name, length) || kind[length] != '_')
		return;
	name = kind + length + 1;
	if (!strcmp(name, "loops"))
		loop();
	if (!strcmp(name, "loops_in_helper"))
		for (;;)
			xk_queue_first(&of(policy, core)->ready);
	if (!strcmp(name, "reads_null"))
		WRITE_ONCE(quotient, READ_ONCE(*READ_ONCE(nowhere)));
	if (!strcmp(name, "writes_wild"))
		WRITE_ONCE(*(u64 *)0xdead000000000000, 0);
	if (!strcmp(name, "divides_by_zero"))
		WRITE_ONCE(quotient, jiffies / READ_ONCE(zero));
	if (!strcmp(name, "bad_thread"))
		xk_change_state((struct xk_thread *)0xdead000000000000, XK_RUNNING, core, NULL);
	if (!strcmp(name, "null_queue"))
		xk_queue_first((struct xk_queue *)READ_ONCE(nowhere));
	if (!strcmp(name, "jumps_wild"))
		((void (*)(void))READ_ONCE(nowhere))();
	if (!strcmp(name, "sleeps"))
		msleep(100);
	if (!strcmp(name, "deadlocks"))
		raw_spin_lock(&never_unlocked);
}

static int prepare(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	if (is("core_999"))
		return 999;
	if (is("core_negative"))
		return -1;
	if (is("core_forbidden"))
		return forbidden(thread, core);
	fail_in("prepare", policy, core);
	if (is("change_in_prepare"))
		xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
	return core;
}

static void place(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	struct xk_queue *ready = &of(policy, core)->ready;

	fail_in("place", policy, core);
	if (is("loop_in_order"))
		ready = &of(policy, core)->ordered;
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
	fail_in("tick", policy, core);
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
	fail_in("yield", policy, core);
	if (is("forget_yield"))
		return;
	if (is("yield_as_blocked"))
		xk_change_state(thread, XK_BLOCKED, core, NULL);
	xk_change_state(thread, XK_READY, core, &of(policy, core)->ready);
}

static void block(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	fail_in("block", policy, core);
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
	fail_in("terminate", policy, core);
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

	if (next)
		fail_in("schedule", policy, core);
	if (!next)
		next = xk_queue_first(&of(policy, core)->ordered);
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
	fail_in("idle", policy, core);
	if (is("steal_from_itself"))
		xk_steal(&of(policy, core)->ready, &of(policy, core)->ready);
	if (is("steal_for_other_core"))
		xk_steal(&of(policy, core)->ready, &of(policy, other(core))->ready);
}

static int take_over(struct xk_sched_policy *policy, const struct xk_sched_policy *old)
{
	return 0;
}

static void adopt(struct xk_sched_policy *policy, struct xk_thread *thread, int core,
		  const struct xk_sched_policy *old)
{
	fail_in("adopt", policy, core);
	if (is("adopt_as_blocked"))
		xk_change_state(thread, XK_BLOCKED, core, NULL);
}

static const struct xk_sched_events events = {
	.init = faulty_init,
	.exit = faulty_exit,
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
	.take_over = take_over,
	.adopt = adopt,
};

static struct xk_sched_policy faulty = {
	.name = "faulty",
	.owner = THIS_MODULE,
	.events = &events,
	.core_size = sizeof(struct faulty_core),
};

/* For mistakes in adopt: makes none itself, and is to be replaced. */
static struct xk_sched_policy replaced = {
	.name = "replaced",
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

	if (!ret && is_in_adopt()) {
		ret = xk_sched_register(&replaced);
		if (ret)
			xk_sched_unregister(&faulty);
	}
	if (!ret && is("change_outside"))
		schedule_delayed_work(&changing, 1);
	return ret;
}

static void __exit xk_sched_faulty_exit(void)
{
	cancel_delayed_work_sync(&changing);
	if (is_in_adopt())
		xk_sched_unregister(&replaced);
	xk_sched_unregister(&faulty);
}

module_init(xk_sched_faulty_init);
module_exit(xk_sched_faulty_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A policy of xk_sched that makes mistakes, for tests");
