/* SPDX-License-Identifier: GPL-2.0-only */
/* Scopes of a tune: scope.c. */
#ifndef _XK_SCOPE_H
#define _XK_SCOPE_H

#include "model/tune.h"

struct module;
struct xk_request;

/* Whatever it returns, xk_scope_destroy() is called for it. */
int xk_scope_init(struct xk_tune *tune, unsigned int index, const struct xk_request *request,
		  struct xk_error *error);
void xk_scope_destroy(struct xk_live_scope *scope);

/* Under xk_lock. */
int xk_scopes_verify(struct xk_tune *tune, struct xk_error *error);

/* `module` has come; nothing of it has run. */
int xk_scopes_verify_module(struct xk_tune *tune, const struct module *module,
			    struct xk_error *error);

/* `module` goes: no thread is in it, and none will be. */
void xk_scopes_await_module(struct xk_tune *tune, const struct module *module);

#endif /* _XK_SCOPE_H */
