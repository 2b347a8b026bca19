// SPDX-License-Identifier: GPL-2.0-only
/*
 * Computes the versions of a tune: from a value of the constant, a block with everything that
 * depends on it.
 */
#include <linux/overflow.h>
#include <linux/slab.h>

#include "core/values.h"
#include "model/backend.h"
#include "policy/policy.h"

/* Fills the part of one site. No handler reads it: the block is new, or the site is not armed. */
static void fill(struct xk_values *block, const struct xk_live_site *site)
{
	struct xk_site_values *values = (void *)block + site->values_offset;
	unsigned int i;

	values->of = block;
	if (block->policy) {
		/* Another version may use the same policy at armed sites. */
		if (site->phase != XK_PHASE_ARMED)
			xk_policy_forget(block->policy, site);
		values->decided = block->policy->sites[site->index].cpus;
	}
	for (i = 0; i < site->nr_ivs; i++)
		values->ivs[i] = xk_iv_apply(&site->ivs[i], block->value);
	xk_native_fill(&site->native, values->ivs, values->constants);
	block->in_stubs |= site->tune->traits & XK_BACKEND_PREEMPTIBLE &&
			    !xk_native_reads_one(&site->native);
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
	for (i = 0; i < tune->nr_sites; i++)
		fill(values, &tune->sites[i]);
	return values;
}

void xk_values_fill_site(struct xk_tune *tune, const struct xk_live_site *site)
{
	lockdep_assert_held(&xk_lock);
	fill(tune->values, site);
	if (tune->other)
		fill(tune->other, site);
}

void xk_values_free(struct xk_values *values)
{
	if (!values)
		return;
	xk_policy_put(values->policy);
	kvfree(values);
}

static void free_after_grace(struct rcu_head *rcu)
{
	xk_values_free(container_of(rcu, struct xk_values, rcu));
}

/*
 * Handlers may still use the version: they run with preemption disabled. Code in stubs runs with
 * preemption enabled. A thread that was switched out in a stub has left it when every thread has
 * been switched out voluntarily.
 */
void xk_values_retire(struct xk_values *values)
{
	if (!values)
		return;
	if (values->in_stubs)
		call_rcu_tasks(&values->rcu, free_after_grace);
	else
		call_rcu(&values->rcu, free_after_grace);
}
