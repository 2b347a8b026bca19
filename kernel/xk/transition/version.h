/* SPDX-License-Identifier: GPL-2.0-only */
/* Which of two versions an execution uses during a transition: version.c. */
#ifndef _XK_VERSION_H
#define _XK_VERSION_H

struct pt_regs;
struct xk_live_site;
struct xk_values;

/*
 * Returns the version that this execution uses. `values` is in force and may be settling. Called by
 * handlers, with preemption disabled.
 */
const struct xk_values *xk_version(const struct xk_values *values);

/* The handler of a site whose values in force are settling. Context and result as xk_handle(). */
int xk_handle_settling(const struct xk_live_site *site, const struct xk_values *values,
		       struct pt_regs *regs);

#endif /* _XK_VERSION_H */
