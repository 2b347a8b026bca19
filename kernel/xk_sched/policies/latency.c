// SPDX-License-Identifier: GPL-2.0-only
/*
 * Latency-critical threads, which are those with a negative nice value, run before all others. One
 * that wakes gets an idle core, else a core where no other critical thread is, and stops what runs
 * there. Batch threads take turns of 20 ms in the time that is left. A critical thread that does
 * not sleep for 100 ms of its time is treated as batch until it sleeps, so that batch goes on.
 */
#include <linux/atomic.h>
#include <linux/cpumask.h>

#include "xk_sched.h"

#define MAX_CRITICAL_NS (100 * NSEC_PER_MSEC)

struct latency_thread {
	u64 woke;	/* what it had run then */
	bool too_long;	/* it has run for MAX_CRITICAL_NS since */
	int claimed;	/* a core for which it wakes, and 1; 0: none */
};

struct latency_core {
	struct xk_queue critical;
	struct xk_queue batch;
	atomic_t coming;	/* critical threads that wake, and are not placed yet */
	bool runs_critical;
};

static struct latency_core *of(struct xk_sched_policy *policy, int core)
{
	return xk_core_data(policy, core);
}

static bool is_critical(const struct xk_thread *thread)
{
	return thread->task->scx.weight > 100 &&
	       !xk_thread_data(thread, const struct latency_thread)->too_long;
}

static struct xk_queue *queue_of(struct latency_core *own, const struct xk_thread *thread)
{
	return is_critical(thread) ? &own->critical : &own->batch;
}

static int latency_init(struct xk_sched_policy *policy)
{
	int core;

	for_each_possible_cpu(core) {
		xk_queue_init(&of(policy, core)->critical, policy, core, XK_FIFO, NULL);
		xk_queue_init(&of(policy, core)->batch, policy, core, XK_FIFO, NULL);
	}
	return 0;
}

/* Other cores may change at any time; then a critical thread waits for another. */
static bool is_free(struct xk_sched_policy *policy, int core)
{
	const struct latency_core *own = of(policy, core);

	return !READ_ONCE(own->runs_critical) && !READ_ONCE(own->critical.nr) &&
	       !atomic_read(&own->coming);
}

static void forget_claim(struct xk_sched_policy *policy, struct latency_thread *own)
{
	if (own->claimed)
		atomic_dec(&of(policy, own->claimed - 1)->coming);
	own->claimed = 0;
}

static int new_prepare(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	return xk_idle_core(thread, core);
}

static int find(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	int other;

	core = xk_idle_core(thread, core);
	if (is_free(policy, core))
		return core;
	for_each_cpu_wrap(other, cpu_online_mask, core + 1)
		if (xk_allowed(thread, other) && is_free(policy, other))
			return other;
	return core;
}

/* Threads that wake at the same time go to different cores. */
static int unblock_prepare(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	struct latency_thread *own = xk_thread_data(thread, struct latency_thread);

	own->too_long = false;
	if (!is_critical(thread))
		return xk_idle_core(thread, core);
	forget_claim(policy, own);
	core = find(policy, thread, core);
	atomic_inc(&of(policy, core)->coming);
	own->claimed = core + 1;
	return core;
}

static void place(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	struct latency_thread *own = xk_thread_data(thread, struct latency_thread);

	forget_claim(policy, own);
	own->woke = thread->task->se.sum_exec_runtime;
	own->too_long = false;
	xk_change_state(thread, XK_READY, core, queue_of(of(policy, core), thread));
	if (is_critical(thread) && !of(policy, core)->runs_critical)
		xk_preempt(core);
}

static void tick(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	struct latency_thread *own = xk_thread_data(thread, struct latency_thread);
	struct xk_queue *critical = &of(policy, core)->critical;

	if (thread->task->se.sum_exec_runtime - own->woke > MAX_CRITICAL_NS)
		own->too_long = true;
	of(policy, core)->runs_critical = is_critical(thread);
	if (critical->nr)
		xk_change_state(thread, XK_READY_TICK, core, queue_of(of(policy, core), thread));
}

static void stop(struct xk_sched_policy *policy, struct xk_thread *thread, int core,
		 enum xk_stop why)
{
	xk_change_state(thread, XK_READY, core, queue_of(of(policy, core), thread));
}

static void block(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	of(policy, core)->runs_critical = false;
	xk_change_state(thread, XK_BLOCKED, core, NULL);
}

static void terminate(struct xk_sched_policy *policy, struct xk_thread *thread, int core)
{
	forget_claim(policy, xk_thread_data(thread, struct latency_thread));
	if (thread->state == XK_RUNNING || thread->state == XK_READY_TICK)
		of(policy, core)->runs_critical = false;
	xk_change_state(thread, XK_TERMINATED, core, NULL);
}

static void schedule_next(struct xk_sched_policy *policy, int core)
{
	struct latency_core *own = of(policy, core);
	struct xk_thread *next = xk_queue_first(&own->critical);

	own->runs_critical = next;
	if (!next)
		next = xk_queue_first(&own->batch);
	if (next)
		xk_change_state(next, XK_RUNNING, core, NULL);
}

static void newly_idle(struct xk_sched_policy *policy, int core)
{
	struct latency_core *own = of(policy, core);
	int other;

	own->runs_critical = false;
	for_each_cpu_wrap(other, cpu_online_mask, core + 1)
		if (other != core && xk_steal(&of(policy, other)->critical, &own->critical))
			return;
	for_each_cpu_wrap(other, cpu_online_mask, core + 1)
		if (other != core && xk_steal(&of(policy, other)->batch, &own->batch))
			return;
}

static const struct xk_sched_events events = {
	.init = latency_init,
	.new_prepare = new_prepare,
	.unblock_prepare = unblock_prepare,
	.new_place = place,
	.unblock_place = place,
	.tick = tick,
	.yield = stop,
	.block = block,
	.terminate = terminate,
	.schedule = schedule_next,
	.newly_idle = newly_idle,
};

static struct xk_sched_policy latency_policy = {
	.name = "latency",
	.owner = THIS_MODULE,
	.events = &events,
	.core_size = sizeof(struct latency_core),
};

module_xk_policy(latency_policy);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Latency-critical threads over batch, a policy of xk_sched");
