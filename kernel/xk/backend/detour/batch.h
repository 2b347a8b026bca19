/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stubs whose jumps are written or removed in one stop: batch.c. Functions need xk_lock, except
 * xk_batch_wait() and xk_window_is_probed().
 */
#ifndef _XK_DETOUR_BATCH_H
#define _XK_DETOUR_BATCH_H

#include <linux/types.h>

struct xk_outside;
struct xk_pokes;
struct xk_stub;
struct xk_window;

/*
 * The caller initialises `nr` and `stubs`, zeroes the rest, and at the end frees `outside` with
 * xk_outside_free().
 */
struct xk_stub_batch {
	unsigned int nr;
	struct xk_stub *const *stubs;
	struct xk_pokes *pokes;
	struct xk_outside *outside;	/* from the look before the stop */
	bool unreadable;		/* a thread may be anywhere */
};

/*
 * Find out where threads are: set stub.entered and stub.empty. xk_batch_look_before() runs before
 * the stop, to keep that short; its results may be outdated. May sleep. xk_batch_look() runs in the
 * stop.
 */
void xk_batch_look_before(struct xk_stub_batch *batch);
void xk_batch_look(struct xk_stub_batch *batch);

/* Sleeps between two attempts: short at first, then twice as long each time. */
void xk_batch_wait(unsigned int attempt);

/* Whether there is a kprobe at one of the instructions. In a stop, or with preemption disabled. */
bool xk_window_is_probed(const struct xk_window *window);

#endif /* _XK_DETOUR_BATCH_H */
