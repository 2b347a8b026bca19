// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the handlers of a tune read for one value: a value of the constant
 * comes in, a block with everything that depends on it goes out.
 */
#include <linux/cpumask.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "policy.h"
#include "xk.h"

/* Of a site that is not armed: nobody reads them. */
int xk_values_fill(struct xk_values *block, const struct xk_live_site *site)
{
	struct xk_site_values *values = (void *)block + site->values_offset;
	const struct xk_plan *plan = &site->plan;
	u64 frame[XK_MAX_OPS] = {};
	unsigned int i;
	int cpu;

	values->of = block;
	if (block->policy) {
		/* Another version may be using the same policy at sites that are armed. */
		if (site->phase != XK_PHASE_ARMED)
			xk_policy_forget(block->policy, site);
		values->decided = block->policy->sites[site->index].cpus;
	}
	for (i = 0; i < site->nr_ivs; i++)
		values->ivs[i] = xk_iv_apply(&site->ivs[i], block->value);
	xk_plan_fill(plan, values->ivs, frame);

	xk_shape_fill(plan, frame, values->constants);
	if (plan->kind != XK_PLAN_STEPS)
		return 0;

	/* There is one when the site's module was loaded before. */
	if (!values->frame)
		values->frame = __alloc_percpu(XK_MAX_OPS * sizeof(u64), sizeof(u64));
	if (!values->frame)
		return -ENOMEM;
	for_each_possible_cpu(cpu)
		memcpy(per_cpu_ptr(values->frame, cpu), frame, plan->nr_ops * sizeof(u64));
	return 0;
}

struct xk_values *xk_values_create(const struct xk_tune *tune, s64 value,
				   struct xk_live_policy *policy)
{
	struct xk_values *values;
	unsigned int i;

	values = kvzalloc(struct_size(values, sites, tune->nr_sites), GFP_KERNEL);
	if (!values)
		return NULL;
	values->value = value;
	values->policy = xk_policy_get(policy);
	values->nr_sites = tune->nr_sites;
	for (i = 0; i < tune->nr_sites; i++) {
		if (xk_values_fill(values, &tune->sites[i])) {
			xk_values_free(values);
			return NULL;
		}
	}
	return values;
}

void xk_values_free(struct xk_values *values)
{
	unsigned int i;

	if (!values)
		return;
	for (i = 0; i < values->nr_sites; i++)
		free_percpu(values->sites[i].frame);
	xk_policy_put(values->policy);
	kvfree(values);
}

static void free_after_grace(struct rcu_head *rcu)
{
	xk_values_free(container_of(rcu, struct xk_values, rcu));
}

/* Handlers may be using it: they run with preemption disabled. */
void xk_values_retire(struct xk_values *values)
{
	if (values)
		call_rcu(&values->rcu, free_after_grace);
}
