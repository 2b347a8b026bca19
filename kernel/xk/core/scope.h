/* SPDX-License-Identifier: GPL-2.0-only */
/* The scopes of a tune, which are its safe spans: scope.c. */
#ifndef _XK_SCOPE_H
#define _XK_SCOPE_H

#include "model/tune.h"

struct module;
struct xk_request;

/*
 * Checks the description of a scope and copies it. Returns 0, or an error with its reason in
 * `error`. In both cases xk_scope_destroy() frees it. May sleep.
 */
int xk_scope_init(struct xk_tune *tune, unsigned int index, const struct xk_request *request,
		  struct xk_error *error);
void xk_scope_destroy(struct xk_live_scope *scope);

/*
 * Verifies all scopes, except those that wait for a module. Returns 0, or an error with its reason
 * in `error`. Under xk_lock; may sleep.
 */
int xk_scopes_verify(struct xk_tune *tune, struct xk_error *error);

/*
 * `module` is being loaded, and none of its code has run. Verifies its scopes. A scope that cannot
 * be verified becomes XK_PHASE_BROKEN. Returns 0, or an error with its reason in `error`. Under
 * xk_lock; may sleep.
 */
int xk_scopes_verify_module(struct xk_tune *tune, const struct module *module,
			    struct xk_error *error);

/*
 * `module` is being removed: no thread is in it, and none will be. Its scopes then wait for it.
 * Under xk_lock.
 */
void xk_scopes_await_module(struct xk_tune *tune, const struct module *module);

#endif /* _XK_SCOPE_H */
