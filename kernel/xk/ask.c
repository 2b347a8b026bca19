// SPDX-License-Identifier: GPL-2.0-only
/*
 * What runs when a stub asks for its update: what a probe would have run, but that it
 * may be interrupted by another, or by itself.
 */
#include <linux/kprobes.h>
#include <linux/preempt.h>

#include "handler.h"
#include "stubs.h"
#include "version.h"
#include "xk.h"

/* Where handlers may nest, nothing of theirs is the CPU's. */
static int notrace run_nested(const struct xk_live_site *site, const struct xk_values *values,
			      struct pt_regs *regs)
{
	const struct xk_site_values *of_site = xk_values_at(values, site);

	if (site->plan.kind == XK_PLAN_STEPS)
		return xk_run_interpret(site, of_site, regs);
	return xk_run(site, of_site, regs);
}

NOKPROBE_SYMBOL(run_nested);

/* From a stub, with the registers there. See xk_stub_ask in stub.S. */
unsigned long notrace xk_detour_run(struct pt_regs *regs, unsigned long number)
{
	const struct xk_stub *stub = xk_stub_at(number);
	const struct xk_live_site *site;
	bool updated = false;

	preempt_disable_notrace();
	site = READ_ONCE(stub->site);
	if (site) {
		const struct xk_values *values = READ_ONCE(*site->values);

		regs->ip = site->address;
		updated = !run_nested(site, xk_version(values), regs);
	}
	/* Not here would another thread run: a stack that ends in a stub cannot be read. */
	barrier();
	__preempt_count_sub(1);
	return updated ? 0 : stub->fault_distance;
}

NOKPROBE_SYMBOL(xk_detour_run);
