// SPDX-License-Identifier: GPL-2.0-only
/* Changes of states by policies: which event allows which, and what follows for the queues. */
#include <linux/bits.h>
#include <linux/irqflags.h>

#include "event/context.h"
#include "event/record.h"
#include "event/report.h"
#include "event/trace.h"
#include "model/core.h"
#include "model/queue.h"
#include "model/state.h"

#define ANY_STATE (BIT(XK_NR_STATES) - 1)

/* What each event may change. An event about a thread changes that thread only. */
static const struct {
	u8 from;		/* states; bits */
	enum xk_state to;
} allowed[XK_NR_EVENTS] = {
	[XK_NEW_PLACE] = { BIT(XK_NOT_QUEUED), XK_READY },
	[XK_UNBLOCK_PLACE] = { BIT(XK_BLOCKED) | BIT(XK_MIGRATING), XK_READY },
	[XK_YIELD] = { BIT(XK_RUNNING), XK_READY },
	[XK_TICK] = { BIT(XK_RUNNING), XK_READY_TICK },
	[XK_BLOCK] = { BIT(XK_RUNNING), XK_BLOCKED },
	[XK_TERMINATE] = { ANY_STATE & ~BIT(XK_READY), XK_TERMINATED },
	[XK_SCHEDULE] = { BIT(XK_READY), XK_RUNNING },
};

/* Why the change is not allowed, or NULL. */
static const char *wrong(const struct xk_context *context, const struct xk_thread *thread,
			 enum xk_state state, int core, const struct xk_queue *queue)
{
	const struct xk_sched_policy *policy = context->policy;

	if (thread->policy != policy)
		return "the thread is not in this policy";
	if (context->thread && context->thread != thread)
		return "the event is about another thread";
	if (allowed[context->event].to != state || state == XK_NOT_QUEUED)
		return "the event does not allow this state";
	if (thread->queue && state != XK_RUNNING)
		return "the thread is in a queue already";
	if (!(allowed[context->event].from & BIT(thread->state)))
		return "the thread has another state than the event changes";
	if (core != context->core || thread->core != core)
		return "the event is about another core";
	if (state == XK_RUNNING && context->chosen)
		return "another thread was chosen already";
	if (state != XK_READY && state != XK_READY_TICK)
		return queue ? "a thread in this state is in no queue" : NULL;
	if (!queue)
		return "a ready thread needs a queue";
	if (queue->policy != policy || queue->core != core)
		return "the queue belongs to another core or policy, or is not initialised";
	return NULL;
}

static int refuse(const struct xk_context *context, const struct xk_thread *thread,
		  enum xk_state state, int core, const char *why)
{
	const struct xk_fault fault = {
		.policy = context->policy,
		.event = context->event,
		/* Another policy gave no pointer to it: it may be no thread at all. */
		.thread = thread->policy == context->policy ? thread : NULL,
		.core = context->core,
		.from = thread->state,
		.to = state,
	};

	xk_report(&fault, "%s (core %d)", why, core);
	return -EINVAL;
}

/* Outside of events, no lock protects the thread, and nobody could check the effect. */
static int refuse_outside(const struct xk_thread *thread, enum xk_state state, int core)
{
	const struct xk_context nothing = {
		.policy = READ_ONCE(thread->policy),
		.event = XK_NO_EVENT,
		.core = -1,
	};

	if (!nothing.policy)
		return -EINVAL;
	return refuse(&nothing, thread, state, core,
		      "xk_change_state() was called outside of events");
}

int xk_change_state(struct xk_thread *thread, enum xk_state state, int core,
		    struct xk_queue *queue)
{
	struct xk_context *context;
	const char *why;

	if (!irqs_disabled())
		return refuse_outside(thread, state, core);
	context = this_cpu_ptr(&xk_context);
	if (context->event == XK_NO_EVENT)
		return refuse_outside(thread, state, core);
	why = wrong(context, thread, state, core, queue);
	if (unlikely(context->recording))
		xk_record_change(context, thread, state, core, queue, why ? -EINVAL : 0);
	if (unlikely(why))
		return refuse(context, thread, state, core, why);
	lockdep_assert_held(&per_cpu_ptr(&xk_cores, core)->lock);
	WRITE_ONCE(context->changing, true);
	switch (state) {
	case XK_READY:
		xk_queue_add(queue, thread);
		break;
	case XK_READY_TICK:
		thread->next_queue = queue;
		break;
	case XK_RUNNING:
		xk_queue_remove(thread);
		context->chosen = thread;
		break;
	default:
		break;
	}
	trace_xk_sched_change(thread, context->event, state);
	thread->state = state;
	WRITE_ONCE(context->changing, false);
	return 0;
}
EXPORT_SYMBOL_GPL(xk_change_state);
