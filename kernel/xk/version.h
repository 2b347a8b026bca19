/* SPDX-License-Identifier: GPL-2.0-only */
/* Which CPUs have gone over to the version of a transition; see version.c. */
#ifndef _XK_VERSION_H
#define _XK_VERSION_H

#include <linux/percpu.h>

struct xk_values;

DECLARE_PER_CPU(u64, xk_epoch);

/* The version that this execution is to use; `values` may be settling. */
const struct xk_values *xk_version(const struct xk_values *values);

#endif /* _XK_VERSION_H */
