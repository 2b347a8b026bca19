/* SPDX-License-Identifier: GPL-2.0-only */
/* Tunes that have an end: lease.c. */
#ifndef _XK_LEASE_H
#define _XK_LEASE_H

#include "model/tune.h"

/* `expired` is called for a tune whose lease is over, under xk_lock. */
void xk_lease_init(void (*expired)(struct xk_tune *tune));

/* No tune is left. */
void xk_lease_exit(void);

/* From now on; 0 takes the end away. */
int xk_lease_set(struct file *caller, u32 id, u64 ns, struct xk_error *error);

/* It should go, and there was no memory for that: soon. Under xk_lock. */
void xk_lease_retry(struct xk_tune *tune);

#endif /* _XK_LEASE_H */
