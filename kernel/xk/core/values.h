/* SPDX-License-Identifier: GPL-2.0-only */
/* Versions of the value of a tune: values.c. Under xk_lock. */
#ifndef _XK_CORE_VALUES_H
#define _XK_CORE_VALUES_H

#include "model/tune.h"

/*
 * Creates a version for `value`. It holds a reference to `policy`, which may be NULL. Returns NULL
 * without memory. May sleep.
 */
struct xk_values *xk_values_create(const struct xk_tune *tune, s64 value,
				   struct xk_live_policy *policy);

/* Frees a version that no one can use. NULL is allowed. */
void xk_values_free(struct xk_values *values);

/* Frees a version that handlers may still use, after a grace period. NULL is allowed. */
void xk_values_retire(struct xk_values *values);

/* Fills the parts of a site that is linked but not armed yet, in all versions of its tune. */
void xk_values_fill_site(struct xk_tune *tune, const struct xk_live_site *site);

#endif /* _XK_CORE_VALUES_H */
