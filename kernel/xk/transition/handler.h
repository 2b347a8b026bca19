/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What runs when a site is reached, whatever the backend. The caller has disabled preemption
 * and cannot nest on its CPU. -EFAULT, and nothing has changed, when memory could not be
 * accessed.
 */
#ifndef _XK_HANDLER_H
#define _XK_HANDLER_H

#include "model/run.h"
#include "policy/policy.h"
#include "transition/version.h"

/*
 * With the program of the site's kind, or xk_run(). What is called while a
 * transition settles, or for a policy, is not inlined: a handler that calls
 * nothing is shorter.
 */
static __always_inline int
xk_handle(const struct xk_live_site *site, struct pt_regs *regs,
	  int (*run)(const struct xk_live_site *site, const struct xk_site_values *values,
		     struct pt_regs *regs))
{
	/* One load decides which value this whole execution uses. */
	const struct xk_values *values = READ_ONCE(*site->values);

	if (unlikely(READ_ONCE(values->settling)))
		return xk_handle_settling(site, values, regs);
	if (values->policy)
		return xk_policy_handle(site, values, regs);
	return run(site, xk_values_at(values, site), regs);
}

#endif /* _XK_HANDLER_H */
