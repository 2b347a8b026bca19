/* SPDX-License-Identifier: GPL-2.0-only */
/* Sites that hold the same instructions, or the same object: conflict.c. Under xk_lock. */
#ifndef _XK_CONFLICT_H
#define _XK_CONFLICT_H

#include "model/tune.h"

struct module;

/* The site that is armed, or will be in a moment, and keeps this one from being so; or NULL. */
const struct xk_live_site *xk_find_conflict(const struct xk_live_site *site,
					    bool (*conflict)(const struct xk_live_site *site,
							     const struct xk_live_site *other));

/* The instructions that it holds overlap with those of the other. For xk_find_conflict(). */
bool xk_sites_overlap(const struct xk_live_site *site, const struct xk_live_site *other);

/*
 * Its function is what was analysed, and its instructions are nobody else's. `module` is
 * the one of the site, loaded; NULL for vmlinux.
 */
int xk_verify_site(struct xk_live_site *site, const struct module *module,
		   struct xk_error *error);

#endif /* _XK_CONFLICT_H */
