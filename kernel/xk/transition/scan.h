/* SPDX-License-Identifier: GPL-2.0-only */
/* Which threads are inside the scopes of a transition. */
#ifndef _XK_SCAN_H
#define _XK_SCAN_H

#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/types.h>

#include "text/internal.h"
#include "transition/stack.h"

struct xk_tune;
struct xk_live_transition;

#define XK_MAX_BLOCKERS 8	/* that are reported */

/* Addresses in the running kernel, ascending, without overlap. */
struct xk_range_set {
	unsigned int nr;
	struct xk_addresses at[];
};

/*
 * Threads that keep the version from before, each with a reference, ascending by
 * address. Handlers read it; it is replaced as a whole while the machine is
 * stopped.
 */
struct xk_settling {
	struct rcu_head rcu;
	u64 epoch;			/* of the stop that flipped; see version.c */
	unsigned int nr;
	unsigned int capacity;
	struct task_struct *tasks[] __counted_by(capacity);
};

/* What one stop of the machine found, and the look before it. */
struct xk_scan {
	const struct xk_range_set *ranges;
	struct xk_outside *outside;	/* at the look before; or NULL */
	unsigned int nr_inside;		/* that did not run then */
	const struct xk_settling *except;	/* who is not looked at; or NULL */
	struct xk_settling *found;
	bool overflow;			/* there was no room for all: nothing may follow */
	unsigned int nr_blockers;
	struct xk_blocker blockers[XK_MAX_BLOCKERS];
	struct xk_blocker seen;		/* of whom is looked at */
};

struct xk_range_set *xk_range_set_create(struct xk_tune *const *tunes, unsigned int nr,
					 bool scopes);
bool xk_range_sets_equal(const struct xk_range_set *a, const struct xk_range_set *b);
struct xk_settling *xk_settling_create(void);
void xk_settling_free(const struct xk_settling *settling);
bool xk_settling_has(const struct xk_settling *settling, const struct task_struct *task);

/* While the machine goes on: who is inside, and who will be outside in a stop. May sleep. */
void xk_scan_before(struct xk_live_transition *transition);

/* Only while the machine is stopped. */
void xk_scan_all(struct xk_live_transition *transition, const struct xk_settling *except);
void xk_scan_again(struct xk_live_transition *transition, const struct xk_settling *before);

#endif /* _XK_SCAN_H */
