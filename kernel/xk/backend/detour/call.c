// SPDX-License-Identifier: GPL-2.0-only
/*
 * The handler that stubs call. It makes the same update as the handler of a probe. Unlike that, it
 * may be interrupted by itself or by another handler.
 */
#include <linux/kprobes.h>
#include <linux/preempt.h>

#include "backend/detour/stub_code.h"
#include "model/tune.h"
#include "transition/handler.h"

static __always_inline int run_update(const struct xk_live_site *site, struct pt_regs *regs)
{
	const struct xk_values *values = xk_version(READ_ONCE(*site->values));

	if (values->policy && xk_policy_may_run())
		return xk_policy_handle(site, values, regs);
	return xk_run(site, xk_values_at(values, site), regs);
}

/* Called from a stub, with the registers of the site. See xk_stub_call_handler in entry.S. */
__noendbr unsigned long notrace xk_detour_run(struct pt_regs *regs, const struct xk_stub *stub)
{
	const struct xk_live_site *site;
	bool updated = false;

	preempt_disable_notrace();
	site = READ_ONCE(stub->site);
	if (site)
		updated = !run_update(site, regs);
	/* Another thread may run from here on: see UNWIND_HINT_REGS in entry.S. */
	preempt_enable_notrace();
	return updated ? 0 : stub->fault_distance;
}

NOKPROBE_SYMBOL(xk_detour_run);
