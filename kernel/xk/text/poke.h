/* SPDX-License-Identifier: GPL-2.0-only */
/* Text that changes while the machine is stopped. */
#ifndef _XK_POKE_H
#define _XK_POKE_H

#include <linux/atomic.h>
#include <linux/percpu.h>
#include <linux/types.h>

#include "text/relocate.h"

/* The last transition in whose stop this CPU has switched. */
DECLARE_PER_CPU(u64, xk_epoch);

/* One instruction that becomes another, or several that become one. */
struct xk_poke {
	unsigned long address;
	unsigned long meanwhile;	/* where who comes to it in the meantime goes on */
	unsigned long before;		/* ... with pokes.epoch, on CPUs that have not noted it */
	u8 len;
	u8 bytes[XK_MAX_WINDOW];
};

struct xk_pokes {
	unsigned int nr;
	unsigned int phase;
	u64 epoch;			/* of the transition that these changes are; or 0 */
	atomic_t followed;		/* CPUs that have seen the phase */
	struct xk_poke at[];		/* perhaps more than nr */
};

struct xk_pokes *xk_pokes_create(unsigned int capacity);

/* Registers for the breakpoints that stand while text changes. */
int xk_poke_init(void);
void xk_poke_exit(void);

/*
 * In a stop, under the lock of text. One CPU makes the changes; all others
 * call xk_pokes_follow() again and again, with `seen` 0 at first, until it is done.
 */
void xk_pokes_make(struct xk_pokes *pokes);
void xk_pokes_follow(struct xk_pokes *pokes, unsigned int *seen);

/*
 * Stops the machine, asks `may`, and makes the changes if it says so. Returns
 * what it said. Takes the lock of text.
 */
bool xk_poke_stopped(struct xk_pokes *pokes, bool (*may)(void *data), void *data);

struct xk_stop_budget;
/* Likewise, and `budget` is charged. */
bool xk_poke_stopped_within(struct xk_pokes *pokes, bool (*may)(void *data), void *data,
			    struct xk_stop_budget *budget);

#endif /* _XK_POKE_H */
