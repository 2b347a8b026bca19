/* SPDX-License-Identifier: GPL-2.0-only */
/* Which CPUs have gone over to the version of a transition; see version.c. */
#ifndef _XK_VERSION_H
#define _XK_VERSION_H

#include <linux/percpu.h>

DECLARE_PER_CPU(u64, xk_epoch);

#endif /* _XK_VERSION_H */
