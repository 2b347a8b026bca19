/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Points at the bytes that the function tracer changes, at the entries of functions: traced.c.
 * Adding and removing need xk_lock.
 */
#ifndef _XK_PROBE_TRACED_H
#define _XK_PROBE_TRACED_H

#include "probe/probe.h"

/* Whether the function tracer may call handlers from this instruction. */
bool xk_is_traced(unsigned long address);

/*
 * Lets the function tracer call the handler at all of these points, in one change of text. Returns
 * 0 or an error, with none of them added. Sleeps.
 */
int xk_traced_add(struct xk_point *const *points, unsigned int nr);

/* Frees what is left. No point is traced. Without xk_lock. */
void xk_traced_exit(void);

/*
 * Undoes it. Handlers may still run: the caller frees the points after a grace period. Sleeps.
 */
void xk_traced_remove(struct xk_point *const *points, unsigned int nr);

#endif /* _XK_PROBE_TRACED_H */
