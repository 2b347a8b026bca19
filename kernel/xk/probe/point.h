/* SPDX-License-Identifier: GPL-2.0-only */
/* Points and their hooks: point.c. All functions need xk_lock. */
#ifndef _XK_PROBE_POINT_H
#define _XK_PROBE_POINT_H

#include "probe/jump.h"
#include "probe/probe.h"

/* Returns the point at this address, or NULL. */
struct xk_point *xk_point_find(unsigned long address);

/*
 * Creates a point. The function that contains it is verified. Returns NULL
 * with the reason in `why`. May sleep.
 */
struct xk_point *xk_point_create(struct xk_plan *plan, unsigned long address, const char **why);

/* Forgets the point: another one may be created at its address. */
void xk_point_forget(const struct xk_point *point);

/*
 * Registers the kprobe of a point without a jump, disabled. Returns 0 or an error: -EADDRNOTAVAIL
 * if kprobes put it behind the endbr64 that is there. May sleep.
 *
 * Kprobes optimise enabled probes from time to time, and let nobody register one meanwhile. This
 * takes a grace period of RCU-tasks. So many probes are registered first, and then enabled.
 */
int xk_point_trap(struct xk_point *point);

/*
 * Enables the kprobe of the point, if it has one. Returns 0, or an error, after which it has none.
 * May sleep.
 */
int xk_point_start(struct xk_point *point);

/* Adds the hook behind those of its point, and takes it off again. */
void xk_hook_add(struct xk_hook *hook);
void xk_hook_remove(const struct xk_hook *hook);

/* How many executions kprobes did not report. */
u64 xk_point_missed(const struct xk_point *point);

#endif /* _XK_PROBE_POINT_H */
