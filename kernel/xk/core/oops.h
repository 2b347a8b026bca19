/* SPDX-License-Identifier: GPL-2.0-only */
/* The report of changed constants in an oops or a panic: oops.c. */
#ifndef _XK_OOPS_H
#define _XK_OOPS_H

/* Updates the report, and taints the kernel if a constant is changed. Under xk_lock. */
void xk_oops_refresh(void);

/* Register and unregister the notifiers. xk_oops_init() returns 0 or an error. */
int xk_oops_init(void);
void xk_oops_exit(void);

#endif /* _XK_OOPS_H */
