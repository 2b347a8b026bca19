// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which of two versions a handler uses while a transition settles.
 *
 * Values change only in a stop, and no interrupt or softirq is being handled during a stop. So each
 * of them sees one version, and `current` alone decides which, whatever thread it interrupted. Only
 * an NMI may run during a stop, on top of the stopper. Its CPU records the epoch of the transition
 * before the stop ends, but never in the middle of an NMI. On a CPU that has not recorded it, the
 * previous version is used.
 */
#include <linux/kprobes.h>
#include <linux/sched.h>

#include "text/poke.h"
#include "transition/handler.h"
#include "transition/scan.h"

/* `values` is settling, or was when the handler read it. */
const struct xk_values *notrace xk_version(const struct xk_values *values)
{
	const struct xk_settling *settling = READ_ONCE(values->settling);

	if (!settling)
		return values;
	if (this_cpu_read(xk_epoch) < settling->epoch || xk_settling_has(settling, current))
		return values->before;
	return values;
}

NOKPROBE_SYMBOL(xk_version);

int notrace xk_handle_settling(const struct xk_live_site *site, const struct xk_values *values,
			       struct pt_regs *regs)
{
	values = xk_version(values);
	if (values->policy)
		return xk_policy_handle(site, values, regs);
	return xk_run(site, xk_values_at(values, site), regs);
}

NOKPROBE_SYMBOL(xk_handle_settling);
