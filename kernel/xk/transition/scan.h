/* SPDX-License-Identifier: GPL-2.0-only */
/* Which threads are inside the scopes of a transition: scan.c. */
#ifndef _XK_SCAN_H
#define _XK_SCAN_H

#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/types.h>

#include "text/internal.h"
#include "transition/stack.h"

struct xk_tune;
struct xk_live_transition;

#define XK_MAX_BLOCKERS 8	/* in a report */

/* Ranges of addresses in the running kernel, ascending, without overlap. */
struct xk_range_set {
	unsigned int nr;
	struct xk_addresses at[];
};

/*
 * Threads that keep the previous version, each with a reference, ascending by address. Handlers
 * read the list. It is replaced as a whole while the machine is stopped.
 */
struct xk_settling {
	struct rcu_head rcu;
	u64 epoch;			/* of the stop that changed versions; see version.c */
	unsigned int nr;
	unsigned int capacity;
	struct task_struct *tasks[] __counted_by(capacity);
};

/* Results of one stop, and of the look before it. */
struct xk_scan {
	const struct xk_range_set *ranges;
	struct xk_outside *outside;	/* from the look before the stop; or NULL */
	unsigned int nr_inside;		/* switched-out threads inside, before the stop */
	const struct xk_settling *except;	/* threads that are not checked; or NULL */
	struct xk_settling *found;
	bool overflow;			/* the list was full: the stop must change nothing */
	unsigned int nr_blockers;
	struct xk_blocker blockers[XK_MAX_BLOCKERS];
	struct xk_blocker seen;		/* the thread that is being checked */
};

/*
 * Collects the ranges in which no thread may be when these tunes switch. Without `scopes`, only the
 * instructions that must change atomically. Returns NULL without memory. Under xk_lock; may sleep.
 */
struct xk_range_set *xk_range_set_create(struct xk_tune *const *tunes, unsigned int nr,
					 bool scopes);

/* Whether the two sets contain the same ranges. */
bool xk_range_sets_equal(const struct xk_range_set *a, const struct xk_range_set *b);

/* Creates an empty list with room for all existing threads; NULL without memory. May sleep. */
struct xk_settling *xk_settling_create(void);

/* Drops the references and frees the list after an RCU grace period. NULL is allowed. */
void xk_settling_free(const struct xk_settling *settling);

/* Whether the list contains the thread. Handlers call it, also in an NMI. */
bool xk_settling_has(const struct xk_settling *settling, const struct task_struct *task);

/*
 * Looks at the threads while they run: which ones are inside, and which ones will be outside in a
 * stop. Under xk_lock; may sleep.
 */
void xk_scan_before(struct xk_live_transition *transition);

/*
 * Only in a stop. xk_scan_all() looks at all threads but those of `except`, which may be NULL.
 * xk_scan_again() looks at the threads of `before`. Both store those inside in scan.found.
 */
void xk_scan_all(struct xk_live_transition *transition, const struct xk_settling *except);
void xk_scan_again(struct xk_live_transition *transition, const struct xk_settling *before);

#endif /* _XK_SCAN_H */
