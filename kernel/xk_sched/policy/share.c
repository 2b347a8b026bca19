// SPDX-License-Identifier: GPL-2.0-only
/*
 * How policies share a core. Each has a time on each core: what its threads have run there, divided
 * by its weight. Of the policies with ready threads, the one with the smallest time is asked first.
 * One that had no ready thread for a while gets no credit for that: its time is raised to that of
 * the policy that chose last.
 *
 * The kernel counts what a thread has run up to its last tick or switch, so what it ran after its
 * last tick before it blocked is counted when it is placed again.
 */
#include <linux/bitops.h>
#include <linux/string.h>

#include "base/error.h"
#include "policy/list.h"
#include "policy/share.h"
#include "uapi/xk_sched.h"

/* How far a policy may be ahead of one that waits, before its thread is stopped. */
#define GRANULARITY_NS (4 * NSEC_PER_MSEC)

static struct xk_policy_core *of(int id, int cpu)
{
	return per_cpu_ptr(READ_ONCE(xk_policies[id])->cores, cpu);
}

int xk_share_first(struct xk_core *core, u32 policies, int cpu)
{
	u32 mask = policies, later;
	int id, first = -1;

	if (is_power_of_2(policies))
		return __ffs(policies);
	while (mask) {
		/* Those from `turn` on, then the others. */
		later = mask & ~(BIT(core->turn) - 1);
		id = __ffs(later ?: mask);
		mask &= ~BIT(id);
		if (first < 0 || (s64)(of(id, cpu)->time - of(first, cpu)->time) < 0)
			first = id;
	}
	return first;
}

bool xk_share_tick(struct xk_thread *thread)
{
	struct xk_sched_policy *policy = thread->policy;
	struct xk_policy_core *own;
	struct xk_core *core;
	bool stop = false;
	u32 others;
	int first;

	if (!READ_ONCE(xk_several_policies))
		return false;
	core = xk_core_lock(thread);
	own = per_cpu_ptr(policy->cores, thread->core);
	xk_core_charge(thread, own);
	others = core->ready & ~BIT(policy->id);
	if (others) {
		first = xk_share_first(core, others, thread->core);
		stop = (s64)(own->time - of(first, thread->core)->time) > GRANULARITY_NS;
	}
	raw_spin_unlock(&core->lock);
	return stop;
}

int xk_policy_set_weight(const char *name, u32 weight, struct xk_error *error)
{
	struct xk_sched_policy *policy;
	int ret = 0;

	if (!weight || weight > XK_MAX_WEIGHT)
		return xk_refuse(error, -EINVAL, "invalid weight %u: weights are 1 to %u", weight,
				 XK_MAX_WEIGHT);
	if (strnlen(name, XK_SCHED_NAME_LEN) == XK_SCHED_NAME_LEN)
		return xk_refuse(error, -EINVAL, "the name of the policy does not end");
	mutex_lock(&xk_policies_lock);
	policy = xk_policy_find(name);
	if (policy)
		WRITE_ONCE(policy->weight, weight);
	else
		ret = xk_refuse(error, -ENOENT,
				"no policy is called %s: load its module; 'xk sched list' shows those that are loaded",
				name);
	mutex_unlock(&xk_policies_lock);
	return ret;
}
