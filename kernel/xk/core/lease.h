/* SPDX-License-Identifier: GPL-2.0-only */
/* Leases: time limits of tunes; lease.c. */
#ifndef _XK_LEASE_H
#define _XK_LEASE_H

#include "model/tune.h"

/* `expired` is called under xk_lock for a tune whose lease ends. */
void xk_leases_init(void (*expired)(struct xk_tune *tune));

/* A new tune has no lease. */
void xk_lease_create(struct xk_tune *tune);

/*
 * Sets the lease of a tune to `ns` nanoseconds from now; 0 removes it. Returns 0, -EINVAL (too
 * long), -ENOENT, -EPERM or -EBUSY (is being unloaded). Takes xk_lock.
 */
int xk_lease_set(struct file *caller, u32 id, u64 ns, struct xk_error *error);

/* Makes the lease end soon, for a tune that could not be unloaded without memory. Under xk_lock. */
void xk_lease_retry(struct xk_tune *tune);

#endif /* _XK_LEASE_H */
