/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which event is being called on this CPU: call.c sets it, change.c and steal.c look at it,
 * escape.c and watch.c also from other CPUs and in NMIs.
 */
#ifndef _XK_SCHED_CONTEXT_H
#define _XK_SCHED_CONTEXT_H

#include <linux/percpu-defs.h>

#include "xk_sched.h"

/* Recordings contain these numbers. */
enum xk_event {
	XK_NO_EVENT,
	XK_NEW_PREPARE,
	XK_NEW_PLACE,
	XK_NEW_END,
	XK_UNBLOCK_PREPARE,
	XK_UNBLOCK_PLACE,
	XK_UNBLOCK_END,
	XK_TICK,
	XK_YIELD,
	XK_BLOCK,
	XK_TERMINATE,
	XK_SCHEDULE,
	XK_NEWLY_IDLE,
	XK_ADOPT,
	XK_QUEUE_AGAIN,		/* after `tick`: no event, but the queue may ask for the order */
	XK_NR_EVENTS,
};

/* Why an event was left before it returned. */
enum xk_escape {
	XK_NOT_LEFT,
	XK_LEFT_LATE,		/* it took too long */
	XK_LEFT_FAULTY,		/* it caused an exception */
};

/* Interrupts are off from the beginning to the end of an event, and no event calls another. */
struct xk_context {
	unsigned long stack;	/* must be first, with `preserved`: run.S */
	unsigned long preserved[6];	/* rbx, rbp, r12 to r15 */
	enum xk_event event;
	int core;		/* whose lock is held, except in *_PREPARE */
	struct xk_sched_policy *policy;
	struct xk_thread *thread;	/* NULL for events of a core */
	struct xk_thread *chosen;	/* by SCHEDULE */
	u64 serial;		/* of the event: no two have the same */
	int preempt_count;	/* when it began; and of rcu_read_lock() */
	int rcu_nesting;
	bool changing;		/* a helper changes what a policy's threads and queues are */
	bool recording;		/* the event is recorded: record.h */
	enum xk_escape left;
	unsigned long left_at;	/* address of the instruction */
};

static_assert(offsetof(struct xk_context, stack) == 0);
static_assert(offsetof(struct xk_context, preserved) == 8);

DECLARE_PER_CPU(struct xk_context, xk_context);

const char *xk_event_name(enum xk_event event);

#endif /* _XK_SCHED_CONTEXT_H */
