/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All sites of a tune: sites.c. Under xk_lock; the functions may sleep unless they say otherwise.
 */
#ifndef _XK_SITES_H
#define _XK_SITES_H

#include "model/tune.h"

struct module;

/*
 * Verify, arm and disarm all sites, except those that wait for a module. All sites are verified
 * before one is armed. The first two return 0, or an error with its reason in `error`. After an
 * error of xk_sites_arm() no site is armed.
 */
int xk_sites_verify(struct xk_tune *tune, struct xk_error *error);
int xk_sites_arm(struct xk_tune *tune, struct xk_error *error);
void xk_sites_disarm(struct xk_tune *tune);

/*
 * Reserves what xk_sites_write() of this value needs. Returns 0 or an error. In both cases
 * xk_sites_close() must follow.
 */
int xk_sites_open(struct xk_tune *tune, s64 value);
void xk_sites_close(struct xk_tune *tune);

/*
 * Writes the value into the objects of sites in data, after it came into force in code. Does not
 * sleep.
 */
void xk_sites_write(struct xk_tune *tune, s64 value);

/*
 * `module` is being loaded, and none of its code has run. Verifies its sites, computes the values
 * in force for them, and arms them. So the module never runs with another value. A site that cannot
 * be armed becomes XK_PHASE_BROKEN.
 */
void xk_sites_module_coming(struct xk_tune *tune, const struct module *module);

/* `module` is being removed; its text still exists. Disarms its sites, which then wait for it. */
void xk_sites_await_module(struct xk_tune *tune, const struct module *module);

#endif /* _XK_SITES_H */
