// SPDX-License-Identifier: GPL-2.0-only
/* Policies come and go. */
#include <linux/err.h>
#include <linux/rcupdate.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "event/recording.h"
#include "event/watch.h"
#include "model/cpus.h"
#include "policy/eject.h"
#include "policy/list.h"
#include "uapi/xk_sched.h"

#define DEFAULT_SLICE_NS (20 * NSEC_PER_MSEC)
#define MIN_SLICE_NS (100 * NSEC_PER_USEC)

static unsigned int nr_policies;

static const char *incomplete(const struct xk_sched_policy *policy)
{
	const struct xk_sched_events *events = policy->events;

	/* `xk sched` has this word for the class of threads that chose no policy. */
	if (!policy->name || !*policy->name || strlen(policy->name) >= XK_SCHED_NAME_LEN ||
	    !strcmp(policy->name, "fair"))
		return "a name of at most 31 characters, other than fair";
	if (!policy->owner)
		return "its module as owner";
	if (!events || !events->unblock_place || !events->schedule)
		return "the events unblock_place and schedule";
	if (policy->slice_ns &&
	    (policy->slice_ns < MIN_SLICE_NS || policy->slice_ns > NSEC_PER_SEC))
		return "a slice between 100 us and 1 s";
	if (policy->weight > XK_MAX_WEIGHT)
		return "a weight of at most 10000";
	return NULL;
}

static void release(struct xk_sched_policy *policy)
{
	free_percpu(policy->core_data);
	free_percpu(policy->cores);
	xk_cpus_free(policy);
}

static int initialise(struct xk_sched_policy *policy)
{
	int ret = 0;

	policy->misplaced = false;
	policy->initialising = true;
	if (policy->events->init)
		ret = policy->events->init(policy);
	policy->initialising = false;
	if (ret || !policy->misplaced)
		return ret;
	pr_err("xk_sched: policy %s is refused: a queue is neither in xk_core_data() nor static\n",
	       policy->name);
	if (policy->events->exit)
		policy->events->exit(policy);
	return -EINVAL;
}

/* Everything but the place in the list. */
static int prepare(struct xk_sched_policy *policy)
{
	int ret;

	raw_spin_lock_init(&policy->lock);
	INIT_LIST_HEAD(&policy->threads);
	policy->nr_threads = 0;
	policy->nr_joined = 0;
	policy->nr_queues = 0;
	policy->nr_overdue = 0;
	if (!policy->slice_ns)
		policy->slice_ns = DEFAULT_SLICE_NS;
	if (!policy->weight)
		policy->weight = XK_DEFAULT_WEIGHT;
	xk_eject_prepare(policy);
	policy->cores = alloc_percpu(struct xk_policy_core);
	policy->core_data = __alloc_percpu(max(policy->core_size, sizeof(u64)), sizeof(u64));
	ret = xk_cpus_init(policy);
	if (!policy->cores || !policy->core_data)
		ret = -ENOMEM;
	if (!ret)
		ret = initialise(policy);
	if (ret)
		release(policy);
	return ret;
}

static int add(struct xk_sched_policy *policy)
{
	unsigned int id;
	int ret;

	if (xk_policy_find(policy->name))
		return -EEXIST;
	for (id = 0; id < XK_MAX_POLICIES && xk_policies[id]; id++)
		;
	if (id == XK_MAX_POLICIES)
		return -ENOSPC;
	policy->id = id;
	ret = prepare(policy);
	if (ret)
		return ret;
	WRITE_ONCE(policy->live, true);
	/* Callbacks that see it also see what was prepared. */
	smp_store_release(&xk_policies[id], policy);
	WRITE_ONCE(xk_several_policies, ++nr_policies > 1);
	if (policy->events->newly_idle)
		WRITE_ONCE(xk_policies_newly_idle, xk_policies_newly_idle | BIT(id));
	return 0;
}

int xk_sched_register(struct xk_sched_policy *policy)
{
	const char *missing = incomplete(policy);
	int ret;

	if (missing) {
		pr_err("xk_sched: policy %s is refused: it needs %s\n", policy->name ?: "",
		       missing);
		return -EINVAL;
	}
	mutex_lock(&xk_policies_lock);
	ret = add(policy);
	mutex_unlock(&xk_policies_lock);
	if (!ret)
		xk_watch_start();
	else
		pr_err("xk_sched: policy %s is not registered (%pe)\n", policy->name, ERR_PTR(ret));
	return ret;
}
EXPORT_SYMBOL_GPL(xk_sched_register);

void xk_sched_unregister(struct xk_sched_policy *policy)
{
	mutex_lock(&xk_policies_lock);
	WRITE_ONCE(policy->live, false);
	WRITE_ONCE(xk_policies_newly_idle, xk_policies_newly_idle & ~BIT(policy->id));
	/*
	 * Callbacks run with interrupts off; after this, none queues a thread or reports a
	 * violation. A grace period of RCU might never end: it waits for threads that were stopped
	 * in rcu_read_lock(), and those of this policy do not run until they are ejected.
	 */
	kick_all_cpus_sync();
	xk_recording_forget(policy);
	xk_eject_wait(policy);
	xk_eject_threads(policy);
	WRITE_ONCE(xk_policies[policy->id], NULL);
	WRITE_ONCE(xk_several_policies, --nr_policies > 1);
	synchronize_rcu();
	mutex_unlock(&xk_policies_lock);
	if (policy->events->exit)
		policy->events->exit(policy);
	release(policy);
	xk_watch_stop();
}
EXPORT_SYMBOL_GPL(xk_sched_unregister);
