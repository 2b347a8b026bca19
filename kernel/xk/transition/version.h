/* SPDX-License-Identifier: GPL-2.0-only */
/* Which of two versions an execution uses while a transition settles; see version.c. */
#ifndef _XK_VERSION_H
#define _XK_VERSION_H

struct pt_regs;
struct xk_live_site;
struct xk_values;

/* The version that this execution is to use; `values` may be settling. */
const struct xk_values *xk_version(const struct xk_values *values);

/* The site is reached, and the values in force are settling. As xk_handle(). */
int xk_handle_settling(const struct xk_live_site *site, const struct xk_values *values,
		       struct pt_regs *regs);

#endif /* _XK_VERSION_H */
