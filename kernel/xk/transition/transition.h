/* SPDX-License-Identifier: GPL-2.0-only */
/* A transition that is under way. All of it under xk_lock. */
#ifndef _XK_TRANSITION_H
#define _XK_TRANSITION_H

#include <linux/types.h>
#include <linux/workqueue.h>

#include "model/backend.h"
#include "model/tune.h"
#include "text/stop_budget.h"
#include "transition/scan.h"

enum xk_transition_phase {
	XK_TRANSITION_WAITING,	/* nobody uses the new version */
	XK_TRANSITION_SETTLING,	/* threads in `settling` use the one from before */
	XK_TRANSITION_REVERSING, /* given up: the next stop makes the old version the new one */
};

struct xk_live_transition {
	enum xk_mode mode;
	enum xk_transition_phase phase;
	bool reverting;
	unsigned int stops;
	struct delayed_work work;	/* goes on where no caller waits */
	struct xk_scan scan;		/* of the last stop, and the look before it */
	struct xk_stop_budget budget;
	unsigned int interval;		/* jiffies between two looks, where nobody waits */
	u64 looked_ns;			/* how long the last look took */
	unsigned int nr_changes;	/* of text, in the next stop */
	struct xk_text_change *changes[XK_MAX_BACKENDS];
	unsigned long obstacle;		/* an instruction that somebody else changed, or 0 */
	struct xk_settling *settling;
	unsigned int nr;
	struct xk_tune *tunes[];	/* each with the version that is not in force: tune.other */
};

/* Room for `nr` tunes, which xk_transition_add() fills. NULL without memory. */
struct xk_live_transition *xk_transition_create(unsigned int nr, enum xk_mode mode);
int xk_transition_add(struct xk_live_transition *transition, struct xk_tune *tune, s64 value,
		      struct xk_live_policy *policy, bool unload, struct xk_error *error);

/* Makes the next step. True: every thread uses the version in force. */
bool xk_transition_advance(struct xk_live_transition *transition);

/* Given up after some have switched; xk_transition_advance() takes them back. */
void xk_transition_revert(struct xk_live_transition *transition);

/* It is over: done, taken back, or, if it still waits, never begun. Frees it. */
void xk_transition_finish(struct xk_live_transition *transition);

/* Nobody waits for it any longer; it goes on by itself. */
void xk_transition_leave(struct xk_live_transition *transition);

/* stop.c. Stops the machine once. Whether scan.found is in use now. */
bool xk_stop(struct xk_live_transition *transition);

#endif /* _XK_TRANSITION_H */
