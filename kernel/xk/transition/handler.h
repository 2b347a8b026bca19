/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The handler of a site, for backends whose handlers cannot nest on a CPU (kprobes). Stubs of
 * detours have a handler of their own: backend/detour/call.c. Preemption is disabled. Returns 0, or
 * -EFAULT if memory could not be accessed; then nothing has changed.
 */
#ifndef _XK_HANDLER_H
#define _XK_HANDLER_H

#include "model/run.h"
#include "policy/policy.h"
#include "transition/version.h"

/*
 * Selects the version and the value for one execution, and runs the update. `run` is the executor
 * of the site's kind, or xk_run(). The calls for a settling transition and for a policy are not
 * inlined: a handler without calls is shorter.
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
