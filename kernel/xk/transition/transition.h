/* SPDX-License-Identifier: GPL-2.0-only */
/* A transition under way. xk_lock protects all of it. */
#ifndef _XK_TRANSITION_H
#define _XK_TRANSITION_H

#include <linux/types.h>
#include <linux/workqueue.h>

#include "model/backend.h"
#include "model/tune.h"
#include "text/stop_budget.h"
#include "transition/scan.h"

enum xk_transition_phase {
	XK_TRANSITION_WAITING,	/* no thread uses the new version */
	XK_TRANSITION_SETTLING,	/* threads in `settling` use the previous version */
	XK_TRANSITION_REVERSING, /* given up: the next stop restores the old version */
};

struct xk_live_transition {
	enum xk_mode mode;
	enum xk_transition_phase phase;
	bool reverting;
	unsigned int stops;
	struct delayed_work work;	/* continues it if no caller waits */
	struct xk_scan scan;		/* of the last stop, and of the look before it */
	struct xk_stop_budget budget;
	unsigned int interval;		/* jiffies between two looks, if no caller waits */
	u64 looked_ns;			/* duration of the last look */
	unsigned int nr_changes;	/* changes of text in the next stop */
	struct xk_text_change *changes[XK_MAX_BACKENDS];
	unsigned long obstacle;		/* instruction changed or probed by someone else; or 0 */
	struct xk_settling *settling;
	unsigned int nr;
	struct xk_tune *tunes[];	/* the version not in force is tune.other */
};

/*
 * Returns a transition with room for `nr` tunes, which xk_transition_add() fills; NULL without
 * memory.
 */
struct xk_live_transition *xk_transition_create(unsigned int nr, enum xk_mode mode);

/*
 * Adds a tune that changes to `value`, chosen by `policy` unless that is NULL. With `unload` the
 * tune is removed at the end. Returns 0, or an error with its reason in `error`: -EBUSY (in
 * transition), -EOPNOTSUPP (mode), -EBADMSG (a scope is broken), -EOVERFLOW (no room in an
 * instruction), -ENOMEM. Under xk_lock.
 */
int xk_transition_add(struct xk_live_transition *transition, struct xk_tune *tune, s64 value,
		      struct xk_live_policy *policy, bool unload, struct xk_error *error);

/*
 * Makes the next step: at most one look at the threads and one stop. Returns true if every thread
 * uses the version in force. Under xk_lock; may sleep.
 */
bool xk_transition_advance(struct xk_live_transition *transition);

/*
 * Gives up after some threads have switched. xk_transition_advance() then switches them back. Under
 * xk_lock.
 */
void xk_transition_revert(struct xk_live_transition *transition);

/*
 * Ends the transition, which is completed, reversed, or has changed nothing, and frees it. Tunes
 * that are unloaded are removed. Under xk_lock; may sleep.
 */
void xk_transition_finish(struct xk_live_transition *transition);

/* No caller waits for the transition any more: a work item continues it. Under xk_lock. */
void xk_transition_leave(struct xk_live_transition *transition);

/*
 * stop.c. Stops the machine once. Returns true if versions or threads switched: scan.found is in
 * use then. Under xk_lock.
 */
bool xk_stop(struct xk_live_transition *transition);

#endif /* _XK_TRANSITION_H */
