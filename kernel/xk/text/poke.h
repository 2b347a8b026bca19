/* SPDX-License-Identifier: GPL-2.0-only */
/* Changes of text while the machine is stopped: poke.c. */
#ifndef _XK_POKE_H
#define _XK_POKE_H

#include <linux/atomic.h>
#include <linux/percpu.h>
#include <linux/types.h>

#include "text/int3.h"
#include "text/relocate.h"

/*
 * The last transition in whose stop this CPU switched versions. Epochs are multiples of
 * XK_EPOCH_STEP. While the breakpoints of this transition are in place, XK_EPOCH_SWITCHED is added:
 * the code at xk_poke.choice looks at the lowest byte only.
 */
#define XK_EPOCH_STEP 256
#define XK_EPOCH_SWITCHED 1
DECLARE_PER_CPU(u64, xk_epoch);

/* A change of one instruction into another one, or of several instructions into one. */
struct xk_poke {
	unsigned long address;
	unsigned long meanwhile;	/* where a CPU that hits the int3 continues */
	unsigned long choice;		/* if pokes.epoch is set: continues by xk_epoch */
	u8 len;
	u8 bytes[XK_MAX_WINDOW];
};

struct xk_pokes {
	unsigned int nr;
	unsigned int steps;		/* that are done */
	u64 epoch;			/* of the transition that these changes belong to; or 0 */
	atomic_t followed;		/* CPUs that have seen the last one */
	struct xk_int3 *entries;	/* as many as there is room for in `at` */
	struct xk_poke at[];		/* may have room for more than nr */
};

/*
 * Returns changes with this capacity, and `nr` equal to it; NULL without memory. Freed by kvfree().
 */
struct xk_pokes *xk_pokes_create(unsigned int capacity);

/*
 * In a stop, under the text lock. One CPU calls xk_pokes_make(). Meanwhile all other CPUs call
 * xk_pokes_follow() repeatedly, with `seen` initially 0. With an epoch, `nr` is at most
 * xk_int3_capacity().
 */
void xk_pokes_make(struct xk_pokes *pokes);
void xk_pokes_follow(struct xk_pokes *pokes, unsigned int *seen);

/*
 * Stops the machine, calls `may` there unless it is NULL, and makes the changes if it returns true.
 * Returns whether they were made. Takes the text lock. Under xk_lock; sleeps.
 */
bool xk_poke_stopped(struct xk_pokes *pokes, bool (*may)(void *data), void *data);

struct xk_stop_budget;
/* The same; adds the stop to `budget`, which may be NULL. */
bool xk_poke_stopped_within(struct xk_pokes *pokes, bool (*may)(void *data), void *data,
			    struct xk_stop_budget *budget);

#endif /* _XK_POKE_H */
