/* SPDX-License-Identifier: GPL-2.0-only */
/* The sites of a tune together: sites.c. Under xk_lock. */
#ifndef _XK_SITES_H
#define _XK_SITES_H

#include "model/tune.h"

struct module;

/* All that do not wait for a module, or none. Verify all before any is armed. */
int xk_sites_verify(struct xk_tune *tune, struct xk_error *error);
int xk_sites_arm(struct xk_tune *tune, struct xk_error *error);
void xk_sites_disarm(struct xk_tune *tune);

/* Before xk_sites_write() of this value. Whatever it returns, close them again. */
int xk_sites_open(struct xk_tune *tune, s64 value);
void xk_sites_close(struct xk_tune *tune);

/* Objects follow a change of the value in code. */
void xk_sites_write(struct xk_tune *tune, s64 value);

/*
 * `module` is loaded; nothing of it has run. The value in force is computed for its code,
 * then it is armed: the module never runs with another value.
 */
void xk_sites_module_coming(struct xk_tune *tune, const struct module *module);

/* `module` goes, its text is still there. */
void xk_sites_await_module(struct xk_tune *tune, const struct module *module);

#endif /* _XK_SITES_H */
