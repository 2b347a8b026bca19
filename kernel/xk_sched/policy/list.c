// SPDX-License-Identifier: GPL-2.0-only
/* The registered policies, and the threads of each. */
#include <linux/string.h>

#include "event/record.h"
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
	thread->ready_at = 0;
	thread->chosen_for = 0;
	thread->charged = thread->task->se.sum_exec_runtime;
	raw_spin_lock(&policy->lock);
	list_add_tail(&thread->of_policy, &policy->threads);
	policy->nr_threads++;
	thread->serial = ++policy->nr_joined;
	WRITE_ONCE(thread->policy, policy);
	if (unlikely(READ_ONCE(xk_recorded) == policy))
		xk_record_join(thread);
	raw_spin_unlock(&policy->lock);
}

void xk_policy_leave(struct xk_thread *thread)
{
	struct xk_sched_policy *policy = thread->policy;

	raw_spin_lock(&policy->lock);
	if (unlikely(READ_ONCE(xk_recorded) == policy))
		xk_record_leave(thread);
	list_del(&thread->of_policy);
	policy->nr_threads--;
	WRITE_ONCE(thread->policy, NULL);
	raw_spin_unlock(&policy->lock);
}

void xk_policy_move(struct xk_thread *thread, struct xk_sched_policy *to)
{
	list_move_tail(&thread->of_policy, &to->threads);
	thread->policy->nr_threads--;
	to->nr_threads++;
	thread->serial = ++to->nr_joined;
	WRITE_ONCE(thread->policy, to);
}
