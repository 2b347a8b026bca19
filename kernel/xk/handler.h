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
#include "policy.h"
#include "xk.h"

static __always_inline void xk_count_hit(const struct xk_live_site *site)
{
	this_cpu_inc(site->counters->hits);
}

static __always_inline void xk_set_value(const struct xk_live_site *site, u64 value,
					 struct pt_regs *regs)
{
	*(u64 *)((char *)regs + site->native.to) = value;
}

static __always_inline int
xk_run_value(const struct xk_live_site *site, const struct xk_site_values *values,
	     struct pt_regs *regs)
{
	xk_set_value(site, values->constants[0], regs);
	xk_count_hit(site);
	return 0;
}

static __always_inline int
xk_run_code(const struct xk_live_site *site, const struct xk_site_values *values,
	    struct pt_regs *regs)
{
	xk_count_hit(site);
	if (site->code(regs, values->constants))
		return xk_fault(site);
	return 0;
}

static __always_inline int
xk_run_plain(const struct xk_live_site *site, const struct xk_site_values *values,
	     struct pt_regs *regs)
{
	xk_count_hit(site);
	if (xk_ops_run(site->linked, site->native.nr_ops, values->ivs, regs))
		return xk_fault(site);
	return 0;
}

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

static __always_inline const struct xk_site_values *
xk_values_at(const struct xk_values *values, const struct xk_live_site *site)
{
	return (const void *)values + site->values_offset;
}

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
