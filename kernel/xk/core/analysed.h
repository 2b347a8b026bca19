/* SPDX-License-Identifier: GPL-2.0-only */
/* What the analysis saw of functions: analysed.c. */
#ifndef _XK_ANALYSED_H
#define _XK_ANALYSED_H

#include "model/tune.h"

struct xk_request;

/* Copied once if the table has it once. -EINVAL, -ENOMEM as ERR_PTR(). */
struct xk_analysed *xk_analysed_get(struct xk_tune *tune, const struct xk_request *request,
				    u64 bytes, u64 mask, u32 len);
void xk_analysed_put(struct xk_analysed *analysed);

/* Copies the names. `what` and `index` name the thing in the refusal. */
int xk_place_name(struct xk_place *place, const char *symbol, const char *module,
		  const char *what, unsigned int index, struct xk_error *error);

#endif /* _XK_ANALYSED_H */
