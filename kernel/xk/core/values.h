/* SPDX-License-Identifier: GPL-2.0-only */
/* The versions of a value: values.c. Under xk_lock. */
#ifndef _XK_CORE_VALUES_H
#define _XK_CORE_VALUES_H

#include "model/tune.h"

/* NULL without memory. `policy`, which may be NULL, is kept as long as the version. */
struct xk_values *xk_values_create(const struct xk_tune *tune, s64 value,
				   struct xk_live_policy *policy);

/* Nobody can be using it; NULL is nothing. */
void xk_values_free(struct xk_values *values);

/* Likewise, but handlers may still be using it. */
void xk_values_retire(struct xk_values *values);

/* A site that is linked, and not armed yet, gets the versions that its tune has now. */
void xk_values_fill_site(struct xk_tune *tune, const struct xk_live_site *site);

#endif /* _XK_CORE_VALUES_H */
