/* SPDX-License-Identifier: GPL-2.0-only */
/* Sites that hold the same instructions or the same object: conflict.c. Under xk_lock. */
#ifndef _XK_CONFLICT_H
#define _XK_CONFLICT_H

#include "model/tune.h"

struct module;

/* Returns a site that is armed or will be armed, and for which `conflict` is true; or NULL. */
const struct xk_live_site *xk_find_conflict(const struct xk_live_site *site,
					    bool (*conflict)(const struct xk_live_site *site,
							     const struct xk_live_site *other));

/* Whether the instructions that the two sites hold overlap. For xk_find_conflict(). */
bool xk_sites_overlap(const struct xk_live_site *site, const struct xk_live_site *other);

/*
 * Verifies that the function of a site is the analysed one and that no other site holds its
 * instructions. Links the site. `module` is the loaded module of the site, or NULL for vmlinux.
 * Returns 0, or an error with its reason in `error`. May sleep.
 */
int xk_verify_site(struct xk_live_site *site, const struct module *module,
		   struct xk_error *error);

/* Whether a tune holds or changes text from `start` to before `end`. */
bool xk_tunes_hold(unsigned long start, unsigned long end);

#endif /* _XK_CONFLICT_H */
