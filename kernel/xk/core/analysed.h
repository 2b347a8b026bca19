/* SPDX-License-Identifier: GPL-2.0-only */
/* The analysed bytes of functions: analysed.c. */
#ifndef _XK_ANALYSED_H
#define _XK_ANALYSED_H

#include "model/tune.h"

struct xk_request;

/*
 * Returns the analysed bytes of a function with a reference. Several uses of the same bytes in the
 * table share one copy. Returns -EINVAL or -ENOMEM as ERR_PTR().
 */
struct xk_analysed *xk_analysed_get(struct xk_tune *tune, const struct xk_request *request,
				    u64 bytes, u64 mask, u32 len);

/* Drops a reference. NULL is allowed. */
void xk_analysed_put(struct xk_analysed *analysed);

/*
 * Copies the names. `what` and `index` name the site or scope in the reason. Returns 0 or -EINVAL.
 */
int xk_place_name(struct xk_place *place, const char *symbol, const char *module,
		  const char *what, unsigned int index, struct xk_error *error);

#endif /* _XK_ANALYSED_H */
