// SPDX-License-Identifier: GPL-2.0-only
/* The registered policies, and the threads of each. */
#include <linux/string.h>

#include "policy/list.h"

/* See list.h. */
DEFINE_MUTEX(xk_policies_lock);
struct xk_sched_policy *xk_policies[XK_MAX_POLICIES];
u32 xk_policies_newly_idle;

struct xk_sched_policy *xk_policy_find(const char *name)
{
	unsigned int id;

	for (id = 0; id < XK_MAX_POLICIES; id++)
		if (xk_policies[id] && !strcmp(xk_policies[id]->name, name))
			return xk_policies[id];
	return NULL;
}

void xk_policy_join(struct xk_sched_policy *policy, struct xk_thread *thread)
{
	memset(thread->data, 0, sizeof(thread->data));
	thread->state = XK_NOT_QUEUED;
	thread->prepared = false;
	thread->yielded = false;
	raw_spin_lock(&policy->lock);
	list_add_tail(&thread->of_policy, &policy->threads);
	policy->nr_threads++;
	WRITE_ONCE(thread->policy, policy);
	raw_spin_unlock(&policy->lock);
}

void xk_policy_leave(struct xk_thread *thread)
{
	struct xk_sched_policy *policy = thread->policy;

	raw_spin_lock(&policy->lock);
	list_del(&thread->of_policy);
	policy->nr_threads--;
	WRITE_ONCE(thread->policy, NULL);
	raw_spin_unlock(&policy->lock);
}
