/* SPDX-License-Identifier: GPL-2.0-only */
/* Checks of instructions that are to be replaced or changed: window.c. */
#ifndef _XK_WINDOW_H
#define _XK_WINDOW_H

#include "model/site.h"
#include "text/relocate.h"

/*
 * Returns NULL if no branch of the site's function leads into the window, or the reason why one
 * may. `text` is the verified text of the function.
 */
const char *xk_branch_into(const struct xk_live_site *site, const struct xk_window *window,
			   const u8 *text);

/* Whether there is a kprobe at one of the instructions. In a stop, or with preemption disabled. */
bool xk_window_is_probed(const struct xk_window *window);

/*
 * Sleeps between two attempts to change windows: short at first, then twice as long each time.
 */
void xk_window_wait(unsigned int attempt);

#endif /* _XK_WINDOW_H */
