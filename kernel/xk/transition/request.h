/* SPDX-License-Identifier: GPL-2.0-only */
/* Transitions that somebody asked for: request.c. */
#ifndef _XK_TRANSITION_REQUEST_H
#define _XK_TRANSITION_REQUEST_H

#include <linux/types.h>

#include "uapi/xk.h"

struct file;
struct xk_error;
struct xk_tune;

/*
 * Carries it out, within its bound. `report`, which may be NULL, says which threads were
 * inside when it was given up.
 */
int xk_transition(struct file *caller, struct xk_transition *request,
		  struct xk_change *changes, char *report, struct xk_error *error);

/* Who is inside in the transition of this tune; -ENOENT. */
int xk_transition_report(u32 id, char *report, size_t size);

/* XK_STATE_* of the tune, and how many threads keep it from being stable. Under xk_lock. */
u32 xk_transition_state(const struct xk_tune *tune, unsigned int *nr_blocking);

#endif /* _XK_TRANSITION_REQUEST_H */
