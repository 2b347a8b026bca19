/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What runs when a site is reached, independent of the backend. Inline, since
 * a call and a return cost as much as the shortest of these; the caller has
 * disabled preemption and cannot nest on its CPU. -EFAULT, and nothing has
 * changed, when memory could not be accessed.
 */
#ifndef _XK_HANDLER_H
#define _XK_HANDLER_H

#include "memory.h"
#include "trace.h"
#include "xk.h"

static __always_inline const struct xk_site_values *
xk_values_of(const struct xk_live_site *site)
{
	/* One load decides which value this whole execution uses. */
	const struct xk_values *values = READ_ONCE(*site->values);

	if (unlikely(READ_ONCE(values->settling)))
		values = xk_version(values);
	return (const void *)values + site->values_offset;
}

static __always_inline void xk_count_hit(const struct xk_live_site *site)
{
	this_cpu_inc(site->counters->hits);
}

static __always_inline int xk_count_fault(const struct xk_live_site *site)
{
	trace_xk_fault(site);
	this_cpu_inc(site->counters->faults);
	return -EFAULT;
}

static __always_inline int
xk_handle_value(const struct xk_live_site *site, struct pt_regs *regs)
{
	xk_shape_value(&site->plan.shape, xk_values_of(site)->constants, regs);
	xk_count_hit(site);
	return 0;
}

static __always_inline int
xk_handle_compare(const struct xk_live_site *site, struct pt_regs *regs)
{
	xk_count_hit(site);
	if (xk_shape_compare(&site->plan.shape, xk_values_of(site)->constants, regs))
		return xk_count_fault(site);
	return 0;
}

static __always_inline int
xk_handle_binary(const struct xk_live_site *site, struct pt_regs *regs)
{
	xk_count_hit(site);
	if (xk_shape_binary(&site->plan.shape, xk_values_of(site)->constants, regs))
		return xk_count_fault(site);
	return 0;
}

static __always_inline int
xk_handle_select(const struct xk_live_site *site, struct pt_regs *regs)
{
	xk_count_hit(site);
	if (xk_shape_select(&site->plan.shape, xk_values_of(site)->constants, regs))
		return xk_count_fault(site);
	return 0;
}

static __always_inline int
xk_handle_steps(const struct xk_live_site *site, struct pt_regs *regs)
{
	xk_count_hit(site);
	if (xk_plan_run(&site->plan, this_cpu_ptr(xk_values_of(site)->frame), regs))
		return xk_count_fault(site);
	return 0;
}

static __always_inline int
xk_handle_interpret(const struct xk_live_site *site, struct pt_regs *regs)
{
	const struct xk_plan *plan = &site->plan;

	xk_count_hit(site);
	if (xk_ops_run(plan->ops, plan->nr_ops, xk_values_of(site)->ivs, regs))
		return xk_count_fault(site);
	return 0;
}

static inline int xk_handle(const struct xk_live_site *site, struct pt_regs *regs)
{
	switch (site->plan.kind) {
	case XK_PLAN_VALUE:
		return xk_handle_value(site, regs);
	case XK_PLAN_COMPARE:
		return xk_handle_compare(site, regs);
	case XK_PLAN_BINARY:
		return xk_handle_binary(site, regs);
	case XK_PLAN_SELECT:
		return xk_handle_select(site, regs);
	case XK_PLAN_STEPS:
		return xk_handle_steps(site, regs);
	default:
		return xk_handle_interpret(site, regs);
	}
}

#endif /* _XK_HANDLER_H */
