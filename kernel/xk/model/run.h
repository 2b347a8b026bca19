/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs the update of a site with given values. The functions are inline because a call and a return
 * cost as much as the shortest update. If memory cannot be accessed, they return -EFAULT and have
 * changed nothing. Called by handlers, with preemption disabled.
 */
#ifndef _XK_RUN_H
#define _XK_RUN_H

#include "model/site.h"
#include "model/values.h"
#include "ops/memory.h"
#include "ops/ops.h"

/* Counts a fault: memory could not be accessed, so the default is used. Returns -EFAULT. */
int xk_fault(const struct xk_live_site *site);

/* Counts a hit of the site. */
static __always_inline void xk_count_hit(const struct xk_live_site *site)
{
	this_cpu_inc(site->counters->hits);
}

/* Stores `value` in the register that the update of kind XK_NATIVE_VALUE sets. */
static __always_inline void xk_set_value(const struct xk_live_site *site, u64 value,
					 struct pt_regs *regs)
{
	*(u64 *)((char *)regs + site->native.to) = value;
}

/* Runs an update that only sets a register. Returns 0. */
static __always_inline int
xk_run_value(const struct xk_live_site *site, const struct xk_site_values *values,
	     struct pt_regs *regs)
{
	xk_set_value(site, values->constants[0], regs);
	xk_count_hit(site);
	return 0;
}

/* Runs native code. Returns 0 or -EFAULT. */
static __always_inline int
xk_run_code(const struct xk_live_site *site, const struct xk_site_values *values,
	    struct pt_regs *regs)
{
	xk_count_hit(site);
	if (site->code(regs, values->constants))
		return xk_fault(site);
	return 0;
}

/* Interprets the operations. Returns 0 or -EFAULT. */
static __always_inline int
xk_run_plain(const struct xk_live_site *site, const struct xk_site_values *values,
	     struct pt_regs *regs)
{
	xk_count_hit(site);
	if (xk_ops_run(site->linked, site->native.nr_ops, values->ivs, regs))
		return xk_fault(site);
	return 0;
}

/* Runs the update with `values`, by the executor of the site's kind. Returns 0 or -EFAULT. */
static inline int xk_run(const struct xk_live_site *site, const struct xk_site_values *values,
			 struct pt_regs *regs)
{
	switch (site->native.kind) {
	case XK_NATIVE_VALUE:
		return xk_run_value(site, values, regs);
	case XK_NATIVE_CODE:
		return xk_run_code(site, values, regs);
	default:
		return xk_run_plain(site, values, regs);
	}
}

/* Returns the part of a version that belongs to the site. */
static __always_inline const struct xk_site_values *
xk_values_at(const struct xk_values *values, const struct xk_live_site *site)
{
	return (const void *)values + site->values_offset;
}

#endif /* _XK_RUN_H */
