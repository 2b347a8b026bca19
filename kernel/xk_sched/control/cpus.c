// SPDX-License-Identifier: GPL-2.0-only
/* The CPUs of policies as text. */
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "base/error.h"
#include "control/cpus.h"
#include "policy/cpus.h"
#include "policy/list.h"

static const char all[] = "all";

static int parse(const char *list, struct cpumask *cpus, struct xk_error *error)
{
	if (!strcmp(list, all)) {
		cpumask_copy(cpus, cpu_possible_mask);
		return 0;
	}
	if (cpulist_parse(list, cpus) || cpumask_empty(cpus))
		return xk_refuse(error, -EINVAL,
				 "'%s' is no list of CPUs of this machine, as 0-3,8, and not 'all'",
				 list);
	if (!cpumask_subset(cpus, cpu_possible_mask))
		return xk_refuse(error, -EINVAL, "not all CPUs of %s exist", list);
	return 0;
}

/* With both locks. */
static int change(const struct xk_sched_cpus *request, const struct cpumask *cpus,
		  struct xk_error *error)
{
	struct xk_sched_policy *policy = xk_policy_find(request->policy);

	if (!policy)
		return xk_refuse(error, -ENOENT,
				 "no policy is called %s: load its module; 'xk sched list' shows those that are loaded",
				 request->policy);
	if (!cpumask_intersects(cpus, cpu_online_mask))
		return xk_refuse(error, -EINVAL, "no CPU of %s is online", request->cpus);
	xk_cpus_change(policy, cpus);
	return 0;
}

int xk_policy_set_cpus(const struct xk_sched_cpus *request, struct xk_error *error)
{
	struct cpumask *cpus;
	int ret;

	if (strnlen(request->policy, XK_SCHED_NAME_LEN) == XK_SCHED_NAME_LEN ||
	    strnlen(request->cpus, XK_SCHED_CPUS_LEN) == XK_SCHED_CPUS_LEN)
		return xk_refuse(error, -EINVAL,
				 "the name of the policy, or the list, does not end");
	cpus = kzalloc(cpumask_size(), GFP_KERNEL);
	if (!cpus)
		return -ENOMEM;
	ret = parse(request->cpus, cpus, error);
	if (!ret) {
		/* In this order: core_entry and core_exit. */
		cpus_read_lock();
		mutex_lock(&xk_policies_lock);
		ret = change(request, cpus, error);
		mutex_unlock(&xk_policies_lock);
		cpus_read_unlock();
	}
	kfree(cpus);
	return ret;
}

void xk_policy_describe_cpus(const struct xk_sched_policy *policy,
			     struct xk_sched_policy_info *info)
{
	info->stranded = policy->stranded;
	if (cpumask_equal(policy->wanted, cpu_possible_mask))
		strscpy(info->cpus, all);
	else
		snprintf(info->cpus, sizeof(info->cpus), "%*pbl", cpumask_pr_args(policy->wanted));
}
