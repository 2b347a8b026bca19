/* SPDX-License-Identifier: GPL-2.0-only */
/* Which event is being called on this CPU: call.c sets it, change.c and steal.c look at it. */
#ifndef _XK_SCHED_CONTEXT_H
#define _XK_SCHED_CONTEXT_H

#include <linux/percpu-defs.h>

#include "xk_sched.h"

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
	XK_NR_EVENTS,
};

/* Interrupts are off from the beginning to the end of an event, and no event calls another. */
struct xk_context {
	enum xk_event event;
	int core;		/* whose lock is held, except in *_PREPARE */
	struct xk_sched_policy *policy;
	struct xk_thread *thread;	/* NULL for events of a core */
	struct xk_thread *chosen;	/* by SCHEDULE */
};

DECLARE_PER_CPU(struct xk_context, xk_context);

const char *xk_event_name(enum xk_event event);

#endif /* _XK_SCHED_CONTEXT_H */
