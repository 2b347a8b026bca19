/* SPDX-License-Identifier: GPL-2.0-only */
/* Transitions that user space requests: request.c. */
#ifndef _XK_TRANSITION_REQUEST_H
#define _XK_TRANSITION_REQUEST_H

#include <linux/types.h>

#include "uapi/xk.h"

struct file;
struct xk_error;
struct xk_tune;

/*
 * Makes the transition, within its timeout. Takes xk_lock; sleeps. Fills the results in `request`.
 * If it is given up, `report`, which may be NULL, receives the blocking threads and their stacks.
 * Returns 0, or an error with its reason in `error`: -ETIMEDOUT, -EINTR, -ENOMEM, or why a change
 * was refused.
 */
int xk_transition(struct file *caller, struct xk_transition *request,
		  struct xk_change *changes, char *report, struct xk_error *error);

/*
 * Writes the threads that block the transition of this tune into `report`; "" if there is no
 * transition. Returns 0, or -ENOENT. Takes xk_lock.
 */
int xk_transition_report(u32 id, char *report, size_t size);

/*
 * Returns the XK_STATE_* of the tune, and in `nr_blocking` the number of threads that keep it from
 * being stable. Under xk_lock.
 */
u32 xk_transition_state(const struct xk_tune *tune, unsigned int *nr_blocking);

#endif /* _XK_TRANSITION_REQUEST_H */
