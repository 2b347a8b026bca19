// SPDX-License-Identifier: GPL-2.0-only
/* Calls of events, with the checks of their effects. */
#include <linux/cpumask.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "event/call.h"
#include "event/escape.h"
#include "event/record.h"
#include "event/report.h"
#include "event/trace.h"
#include "ext/kernel.h"
#include "model/core.h"
#include "model/count.h"
#include "model/cpus.h"
#include "model/queue.h"
#include "model/state.h"
#include "model/thread.h"

DEFINE_PER_CPU(struct xk_context, xk_context);

static bool is_live(const struct xk_sched_policy *policy)
{
	return likely(READ_ONCE(policy->live));
}

static __always_inline struct xk_context *begin(enum xk_event event,
						struct xk_sched_policy *policy,
						struct xk_thread *thread, int core)
{
	struct xk_context *context = this_cpu_ptr(&xk_context);

	context->event = event;
	context->core = core;
	context->policy = policy;
	context->thread = thread;
	context->chosen = NULL;
	WRITE_ONCE(context->serial, context->serial + 1);
	return context;
}

static __always_inline void end(void)
{
	__this_cpu_write(xk_context.event, XK_NO_EVENT);
}

/* Between begin() and end(). If the event had to be left, its policy is ejected. */
static __always_inline unsigned long run(struct xk_context *context, void *event,
					 unsigned long first, unsigned long second,
					 unsigned long third, unsigned long fourth)
{
	unsigned long answer;

	if (unlikely(READ_ONCE(xk_recorded) == context->policy))
		xk_record_begin(context, fourth);
	context->preempt_count = preempt_count();
	context->rcu_nesting = xk_rcu_nesting();
	answer = xk_event_run(first, second, third, fourth, event, context);
	if (unlikely(context->left))
		xk_escape_report(context);
	if (unlikely(context->recording))
		xk_record_end(context, answer);
	return answer;
}

typedef void thread_fn(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
typedef int prepare_fn(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
typedef void core_fn(struct xk_sched_policy *policy, int core);

static void about_thread(enum xk_event event, thread_fn *function, struct xk_thread *thread,
			 int core)
{
	struct xk_sched_policy *policy = thread->policy;

	run(begin(event, policy, thread, core), function, (unsigned long)policy,
	    (unsigned long)thread, core, 0);
}

static void about_core(enum xk_event event, core_fn *function, struct xk_sched_policy *policy,
		       int core)
{
	run(begin(event, policy, NULL, core), function, (unsigned long)policy, core, 0, 0);
	end();
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
		   prepare_fn *function)
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
	answer = run(begin(event, policy, thread, core), function, (unsigned long)policy,
		     (unsigned long)thread, core, 0);
	end();
	if (unlikely(!is_live(policy)))
		return core;
	if (unlikely(answer < 0 || answer >= nr_cpu_ids || !cpu_possible(answer))) {
		xk_report(&fault, "it returned core %d, which does not exist", answer);
		return core;
	}
	/* The pi_lock protects the affinity. The CPUs of the policy may change at any time. */
	if (unlikely(answer != core && !cpumask_test_cpu(answer, thread->task->cpus_ptr))) {
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
	core = xk_home(thread, core);
	if (thread->state != XK_NOT_QUEUED) {
		core = prepare(XK_UNBLOCK_PREPARE, thread, core, events->unblock_prepare);
	} else {
		thread->prepared = true;
		core = prepare(XK_NEW_PREPARE, thread, core, events->new_prepare);
	}
	return xk_home(thread, core);
}

/* The thread joined the policy while it was running, so nobody asked where to place it. */
static void prepare_late(struct xk_thread *thread, int core)
{
	thread->prepared = true;
	prepare(XK_NEW_PREPARE, thread, core, thread->policy->events->new_prepare);
}

static void place_new(struct xk_thread *thread, int core)
{
	const struct xk_sched_events *events = thread->policy->events;

	about_thread(XK_NEW_PLACE, events->new_place ?: events->unblock_place, thread, core);
	check(XK_NEW_PLACE, thread, XK_NOT_QUEUED, XK_READY);
	if (events->new_end && is_live(thread->policy))
		about_thread(XK_NEW_END, events->new_end, thread, core);
}

static void place_unblocked(struct xk_thread *thread, int core)
{
	const struct xk_sched_events *events = thread->policy->events;
	enum xk_state before = thread->state;

	about_thread(XK_UNBLOCK_PLACE, events->unblock_place, thread, core);
	check(XK_UNBLOCK_PLACE, thread, before, XK_READY);
	if (events->unblock_end && is_live(thread->policy))
		about_thread(XK_UNBLOCK_END, events->unblock_end, thread, core);
}

static void place_stopped(struct xk_thread *thread, int core)
{
	struct xk_sched_policy *policy = thread->policy;
	enum xk_stop why = thread->yielded ? XK_STOP_YIELD : XK_STOP_SLICE;
	const struct xk_sched_events *events = policy->events;

	thread->yielded = false;
	run(begin(XK_YIELD, policy, thread, core), events->yield ?: (void *)events->unblock_place,
	    (unsigned long)policy, (unsigned long)thread, core, why);
	check(XK_YIELD, thread, XK_RUNNING, XK_READY);
}

/* As an event, since the queue may ask the policy for the order. */
static void queue_again(struct xk_queue *queue, struct xk_thread *thread)
{
	struct xk_context *context = this_cpu_ptr(&xk_context);

	WRITE_ONCE(context->changing, true);
	xk_queue_add(queue, thread);
	thread->state = XK_READY;
	WRITE_ONCE(context->changing, false);
}

/* With the lock of its core, outside of events. */
static void oust(struct xk_thread *thread)
{
	if (!thread->queue)
		return;
	if (unlikely(READ_ONCE(xk_recorded) == thread->policy))
		xk_record_oust(thread);
	else
		xk_queue_remove(thread);
	trace_xk_sched_change(thread, XK_NO_EVENT, XK_MIGRATING);
	thread->state = XK_MIGRATING;
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
			run(begin(XK_QUEUE_AGAIN, thread->policy, thread, core), queue_again,
			    (unsigned long)thread->next_queue, (unsigned long)thread, 0, 0);
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

/* With the lock of the core, where the thread goes instead of the one on which it stops. */
static void displace(struct xk_thread *thread)
{
	if (thread->state == XK_RUNNING || thread->state == XK_READY_TICK)
		thread->state = XK_MIGRATING;
	thread->yielded = false;
}

bool xk_call_place(struct xk_thread *thread, int at, bool *next)
{
	const int core = xk_home(thread, at);
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
	if (READ_ONCE(xk_several_policies))
		xk_core_charge(thread, per_cpu_ptr(thread->policy->cores, core));
	began(thread, own);
	if (unlikely(core != at))
		displace(thread);
	if (is_live(thread->policy))
		place(thread, core);
	end();
	placed = is_live(thread->policy);
	if (placed && core == at)
		*next = is_next(thread, own, core);
	if (unlikely(!placed))
		oust(thread);
	raw_spin_unlock(&own->lock);
	/* The kernel only knows that the other CPU has something to do. */
	if (unlikely(placed && core != at))
		xk_ext_kick(core, false);
	return placed;
}

bool xk_call_move(struct xk_thread *thread, int gone)
{
	struct xk_core *core = xk_core_lock(thread), *other;
	const int home = thread->queue ? xk_home_but(thread, thread->core, gone) : thread->core;

	if (home == thread->core || !is_live(thread->policy)) {
		raw_spin_unlock(&core->lock);
		return true;
	}
	other = per_cpu_ptr(&xk_cores, home);
	if (!raw_spin_trylock(&other->lock)) {
		raw_spin_unlock(&core->lock);
		return false;
	}
	/* In a queue, it neither runs nor changes its affinity. */
	oust(thread);
	trace_xk_sched_move(thread, home);
	WRITE_ONCE(thread->core, home);
	raw_spin_unlock(&core->lock);
	place_unblocked(thread, home);
	end();
	if (unlikely(!is_live(thread->policy)))
		oust(thread);
	raw_spin_unlock(&other->lock);
	xk_ext_kick(home, false);
	return true;
}

void xk_call_oust(struct xk_thread *thread)
{
	struct xk_core *core = xk_core_lock(thread);

	oust(thread);
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
		about_thread(XK_TICK, policy->events->tick, thread, thread->core);
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
	oust(thread);
	thread->state = XK_RUNNING;
	thread->yielded = false;
	if (policy->events->block && is_live(policy)) {
		about_thread(XK_BLOCK, policy->events->block, thread, thread->core);
		end();
		check(XK_BLOCK, thread, XK_RUNNING, XK_BLOCKED);
	} else {
		trace_xk_sched_change(thread, XK_BLOCK, XK_BLOCKED);
	}
	thread->state = XK_BLOCKED;
	raw_spin_unlock(&core->lock);
}

void xk_call_terminate(struct xk_thread *thread)
{
	struct xk_sched_policy *policy = thread->policy;
	struct xk_core *core = xk_core_lock(thread);
	enum xk_state before;

	if (READ_ONCE(xk_several_policies))
		xk_core_charge(thread, per_cpu_ptr(policy->cores, thread->core));
	oust(thread);
	before = thread->state;
	if (policy->events->terminate && is_live(policy) && before != XK_NOT_QUEUED) {
		about_thread(XK_TERMINATE, policy->events->terminate, thread, thread->core);
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

	about_core(XK_SCHEDULE, policy->events->schedule, policy, core);
	chosen = __this_cpu_read(xk_context.chosen);
	if (!chosen) {
		own->nr_declined++;
		return NULL;
	}
	own->nr_switches++;
	xk_count_chosen(chosen, own, core);
	per_cpu_ptr(&xk_cores, core)->time = own->time;
	return chosen;
}

void xk_call_newly_idle(struct xk_sched_policy *policy, int core)
{
	about_core(XK_NEWLY_IDLE, policy->events->newly_idle, policy, core);
}

static void adopt(struct xk_thread *thread, const struct xk_sched_policy *old)
{
	struct xk_sched_policy *policy = thread->policy;
	enum xk_state before = thread->state;

	if (!policy->events->adopt) {
		memset(thread->data, 0, sizeof(thread->data));
		return;
	}
	run(begin(XK_ADOPT, policy, thread, thread->core), policy->events->adopt,
	    (unsigned long)policy, (unsigned long)thread, thread->core, (unsigned long)old);
	check(XK_ADOPT, thread, before, before);
}

bool xk_call_adopt(struct xk_thread *thread, const struct xk_sched_policy *old)
{
	struct xk_core *core = per_cpu_ptr(&xk_cores, thread->core);
	const bool is_ready = thread->queue;

	raw_spin_lock(&core->lock);
	oust(thread);
	if (thread->state == XK_READY_TICK)
		thread->state = XK_RUNNING;
	if (thread->state == XK_NOT_QUEUED) {
		/* No policy has seen it but in new_prepare. */
		memset(thread->data, 0, sizeof(thread->data));
		thread->prepared = false;
	} else {
		adopt(thread, old);
	}
	if (is_ready && is_live(thread->policy))
		place_unblocked(thread, thread->core);
	end();
	raw_spin_unlock(&core->lock);
	return is_live(thread->policy);
}
