/* SPDX-License-Identifier: GPL-2.0-only */
/* Stubs whose jumps are written, or taken away, in one stop: batch.c. */
#ifndef _XK_DETOUR_BATCH_H
#define _XK_DETOUR_BATCH_H

#include <linux/types.h>

struct xk_outside;
struct xk_pokes;
struct xk_stub;
struct xk_window;

/* Begins with nothing but `nr` and `stubs`, and ends with xk_outside_free(outside). */
struct xk_stub_batch {
	unsigned int nr;
	struct xk_stub *const *stubs;
	struct xk_pokes *pokes;
	struct xk_outside *outside;	/* when threads were looked at before the stop */
	bool unreadable;		/* a thread may be anywhere */
	bool registers;			/* a thread registers a probe */
};

/*
 * Where threads are: stub.entered and stub.empty, and `registers`. While they go on, so
 * that the stop is short: what is noted is of a moment ago. Then, in the stop.
 */
void xk_batch_look_before(struct xk_stub_batch *batch);
void xk_batch_look(struct xk_stub_batch *batch);

/* Between two attempts: short at first, twice as long each time. */
void xk_batch_wait(unsigned int attempt);

/* Somebody has a probe at one of the instructions. With preemption disabled, or in a stop. */
bool xk_window_is_probed(const struct xk_window *window);

#endif /* _XK_DETOUR_BATCH_H */
