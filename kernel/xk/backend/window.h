/* SPDX-License-Identifier: GPL-2.0-only */
/* Instructions that are replaced or changed: window.c. */
#ifndef _XK_WINDOW_H
#define _XK_WINDOW_H

#include "model/site.h"
#include "text/relocate.h"

/*
 * Why a branch of the site's function may lead into the window; NULL: none does. `text` are
 * the verified bytes of the function.
 */
const char *xk_branch_into(const struct xk_live_site *site, const struct xk_window *window,
			   const u8 *text);

#endif /* _XK_WINDOW_H */
