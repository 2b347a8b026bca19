// SPDX-License-Identifier: GPL-2.0-only
/* Calls of events, with the checks of their effects. */
#include <linux/cpumask.h>
#include <linux/smp.h>

#include "event/call.h"
#include "event/report.h"
#include "model/core.h"
#include "model/queue.h"
#include "model/state.h"
#include "model/thread.h"

DEFINE_PER_CPU(struct xk_context, xk_context);

static bool is_live(const struct xk_sched_policy *policy)
{
	return likely(READ_ONCE(policy->live));
}

static void begin(enum xk_event event, struct xk_sched_policy *policy, struct xk_thread *thread,
		  int core)
{
	struct xk_context *context = this_cpu_ptr(&xk_context);

	context->event = event;
	context->core = core;
	context->policy = policy;
	context->thread = thread;
	context->chosen = NULL;
}

static void end(void)
{
	__this_cpu_write(xk_context.event, XK_NO_EVENT);
}

/* An event must leave its thread in this state. */
static void check(enum xk_event event, struct xk_thread *thread, enum xk_state before,
		  enum xk_state wanted)
{
	const struct xk_fault fault = {
		.policy = thread->policy,
		.event = event,
		.thread = thread,
		.core = thread->core,
		.from = before,
		.to = thread->state,
	};

	if (unlikely(thread->state != wanted))
		xk_report(&fault, "the thread must be %s at the end of the event",
			  xk_state_name(wanted));
}

static int prepare(enum xk_event event, struct xk_thread *thread, int core,
		   int (*function)(struct xk_sched_policy *, struct xk_thread *, int))
{
	struct xk_sched_policy *policy = thread->policy;
	const struct xk_fault fault = {
		.policy = policy,
		.event = event,
		.thread = thread,
		.core = core,
		.from = thread->state,
		.to = thread->state,
	};
	int answer;

	if (!function)
		return core;
	begin(event, policy, thread, core);
	answer = function(policy, thread, core);
	end();
	if (unlikely(answer < 0 || answer >= nr_cpu_ids || !cpu_possible(answer))) {
		xk_report(&fault, "it returned core %d, which does not exist", answer);
		return core;
	}
	/* The pi_lock protects the affinity. */
	if (unlikely(answer != core && !xk_allowed(thread, answer))) {
		xk_report(&fault, "it returned core %d, on which the thread may not run", answer);
		return core;
	}
	return answer;
}

int xk_call_prepare(struct xk_thread *thread, int core)
{
	const struct xk_sched_events *events = thread->policy->events;

	if (!is_live(thread->policy))
		return core;
	if (thread->state != XK_NOT_QUEUED)
		return prepare(XK_UNBLOCK_PREPARE, thread, core, events->unblock_prepare);
	thread->prepared = true;
	return prepare(XK_NEW_PREPARE, thread, core, events->new_prepare);
}

/* The thread joined the policy while it was running, so nobody asked where to place it. */
static void prepare_late(struct xk_thread *thread, int core)
{
	thread->prepared = true;
	prepare(XK_NEW_PREPARE, thread, core, thread->policy->events->new_prepare);
}

static void place_new(struct xk_thread *thread, int core)
{
	struct xk_sched_policy *policy = thread->policy;

	begin(XK_NEW_PLACE, policy, thread, core);
	policy->events->new_place(policy, thread, core);
	check(XK_NEW_PLACE, thread, XK_NOT_QUEUED, XK_READY);
	if (policy->events->new_end && is_live(policy)) {
		begin(XK_NEW_END, policy, thread, core);
		policy->events->new_end(policy, thread, core);
	}
}

static void place_unblocked(struct xk_thread *thread, int core)
{
	struct xk_sched_policy *policy = thread->policy;
	enum xk_state before = thread->state;

	begin(XK_UNBLOCK_PLACE, policy, thread, core);
	policy->events->unblock_place(policy, thread, core);
	check(XK_UNBLOCK_PLACE, thread, before, XK_READY);
	if (policy->events->unblock_end && is_live(policy)) {
		begin(XK_UNBLOCK_END, policy, thread, core);
		policy->events->unblock_end(policy, thread, core);
	}
}

static void place_stopped(struct xk_thread *thread, int core)
{
	struct xk_sched_policy *policy = thread->policy;
	enum xk_stop why = thread->yielded ? XK_STOP_YIELD : XK_STOP_SLICE;

	thread->yielded = false;
	begin(XK_YIELD, policy, thread, core);
	policy->events->yield(policy, thread, core, why);
	check(XK_YIELD, thread, XK_RUNNING, XK_READY);
}

static void place(struct xk_thread *thread, int core)
{
	switch (thread->state) {
	case XK_NOT_QUEUED:
		place_new(thread, core);
		break;
	case XK_RUNNING:
		place_stopped(thread, core);
		break;
	case XK_READY_TICK:
		if (thread->next_queue->core == core) {
			thread->state = XK_READY;
			xk_queue_add(thread->next_queue, thread);
			break;
		}
		thread->state = XK_MIGRATING;
		fallthrough;
	default:
		place_unblocked(thread, core);
	}
}

/* With the lock of the core. Whether a thread was chosen early, and waits for the core. */
static bool someone_is_next(const struct xk_core *own, int core)
{
	return own->next && (core != smp_processor_id() || own->next != xk_thread_of(current));
}

/* With the lock of the core. An eager policy chooses the thread if no other waits. */
static bool is_next(struct xk_thread *thread, struct xk_core *own, int core)
{
	struct xk_sched_policy *policy = thread->policy;

	if (!policy->eager || own->ready != BIT(policy->id) || someone_is_next(own, core) ||
	    per_cpu_ptr(policy->cores, core)->nr_ready != 1 ||
	    xk_call_schedule(policy, core) != thread)
		return false;
	own->next = thread;
	return true;
}

/* With the lock of its core: the thread has begun to run. */
static void began(const struct xk_thread *thread, struct xk_core *core)
{
	if (core->next == thread)
		core->next = NULL;
}

bool xk_call_place(struct xk_thread *thread, int core, bool *next)
{
	struct xk_core *own = per_cpu_ptr(&xk_cores, core);
	bool placed;

	if (unlikely(thread->state == XK_READY))
		xk_call_oust(thread);
	if (!is_live(thread->policy))
		return false;
	if (thread->state == XK_NOT_QUEUED && !thread->prepared)
		prepare_late(thread, core);
	raw_spin_lock(&own->lock);
	WRITE_ONCE(thread->core, core);
	began(thread, own);
	if (is_live(thread->policy))
		place(thread, core);
	end();
	placed = is_live(thread->policy);
	if (placed)
		*next = is_next(thread, own, core);
	if (unlikely(!placed && thread->queue)) {
		xk_queue_remove(thread);
		thread->state = XK_MIGRATING;
	}
	raw_spin_unlock(&own->lock);
	return placed;
}

void xk_call_oust(struct xk_thread *thread)
{
	struct xk_core *core = xk_core_lock(thread);

	if (thread->queue) {
		xk_queue_remove(thread);
		thread->state = XK_MIGRATING;
	}
	raw_spin_unlock(&core->lock);
}

bool xk_call_tick(struct xk_thread *thread)
{
	struct xk_sched_policy *policy = thread->policy;
	struct xk_core *core;
	bool stop;

	if (!policy->events->tick || !is_live(policy))
		return false;
	core = xk_core_lock(thread);
	began(thread, core);
	/* If it was to stop at the last tick, there was no other thread. */
	if (thread->state == XK_READY_TICK)
		thread->state = XK_RUNNING;
	if (thread->state == XK_RUNNING) {
		begin(XK_TICK, policy, thread, thread->core);
		policy->events->tick(policy, thread, thread->core);
		end();
	}
	stop = thread->state == XK_READY_TICK;
	raw_spin_unlock(&core->lock);
	return stop;
}

void xk_call_block(struct xk_thread *thread)
{
	struct xk_sched_policy *policy = thread->policy;
	struct xk_core *core;

	/* It was never placed, so the policy does not know it. */
	if (thread->state == XK_NOT_QUEUED)
		return;
	core = xk_core_lock(thread);
	began(thread, core);
	if (thread->queue)
		xk_queue_remove(thread);
	thread->state = XK_RUNNING;
	thread->yielded = false;
	if (is_live(policy)) {
		begin(XK_BLOCK, policy, thread, thread->core);
		policy->events->block(policy, thread, thread->core);
		end();
		check(XK_BLOCK, thread, XK_RUNNING, XK_BLOCKED);
	}
	thread->state = XK_BLOCKED;
	raw_spin_unlock(&core->lock);
}

void xk_call_terminate(struct xk_thread *thread)
{
	struct xk_sched_policy *policy = thread->policy;
	struct xk_core *core = xk_core_lock(thread);
	enum xk_state before;

	if (thread->queue) {
		xk_queue_remove(thread);
		thread->state = XK_MIGRATING;
	}
	before = thread->state;
	if (is_live(policy) && before != XK_NOT_QUEUED) {
		begin(XK_TERMINATE, policy, thread, thread->core);
		policy->events->terminate(policy, thread, thread->core);
		end();
		check(XK_TERMINATE, thread, before, XK_TERMINATED);
	}
	thread->state = XK_TERMINATED;
	raw_spin_unlock(&core->lock);
}

struct xk_thread *xk_call_schedule(struct xk_sched_policy *policy, int core)
{
	struct xk_policy_core *own = per_cpu_ptr(policy->cores, core);
	struct xk_thread *chosen;

	begin(XK_SCHEDULE, policy, NULL, core);
	policy->events->schedule(policy, core);
	end();
	chosen = __this_cpu_read(xk_context.chosen);
	if (chosen)
		own->nr_switches++;
	else
		own->nr_declined++;
	return chosen;
}

void xk_call_newly_idle(struct xk_sched_policy *policy, int core)
{
	begin(XK_NEWLY_IDLE, policy, NULL, core);
	policy->events->newly_idle(policy, core);
	end();
}
