/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stubs whose jumps are written or removed in one stop: batch.c. Functions need xk_lock.
 */
#ifndef _XK_DETOUR_BATCH_H
#define _XK_DETOUR_BATCH_H

#include <linux/types.h>

struct xk_outside;
struct xk_pokes;
struct xk_stub;

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

#endif /* _XK_DETOUR_BATCH_H */
