// SPDX-License-Identifier: GPL-2.0-only
/* What policies do: counters while somebody looks, and all threads of a policy. */
#include <linux/atomic.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "base/error.h"
#include "control/stats.h"
#include "model/count.h"
#include "model/state.h"
#include "policy/list.h"

#define MAX_THREADS 65536u

/* The private data of a descriptor that counts. */
static char counts;

static void add(const struct xk_sched_policy *policy, struct xk_sched_stats *stats)
{
	const struct xk_policy_core *own;
	unsigned int i;
	int cpu;

	strscpy(stats->name, policy->name);
	for_each_possible_cpu(cpu) {
		own = per_cpu_ptr(policy->cores, cpu);
		stats->nr_moves += READ_ONCE(own->nr_moves);
		stats->waited_ns += READ_ONCE(own->waited_ns);
		for (i = 0; i < XK_SCHED_NR_WAITS; i++)
			stats->waits[i] += READ_ONCE(own->waits[i]);
	}
}

int xk_stats_read(struct file *file, struct xk_sched_stats *stats)
{
	unsigned int id, index = 0;
	int ret = -ENOENT;

	/* Takes the hotplug lock, inside of which core_entry and core_exit take the mutex. */
	if (!cmpxchg(&file->private_data, NULL, &counts))
		xk_count_begin();
	mutex_lock(&xk_policies_lock);
	for (id = 0; id < XK_MAX_POLICIES && ret; id++) {
		if (!xk_policies[id] || index++ != stats->index)
			continue;
		add(xk_policies[id], stats);
		ret = 0;
	}
	mutex_unlock(&xk_policies_lock);
	return ret;
}

void xk_stats_release(struct file *file)
{
	if (file->private_data == &counts)
		xk_count_end();
}

static void describe(const struct xk_thread *thread, struct xk_sched_thread *to)
{
	const struct xk_queue *queue = READ_ONCE(thread->queue);

	to->pid = thread->task->pid;
	to->core = READ_ONCE(thread->core);
	to->ran_ns = thread->task->se.sum_exec_runtime;
	strscpy(to->state, xk_state_name(READ_ONCE(thread->state)));
	strscpy(to->comm, thread->task->comm);
	/* Queues live as long as the policy. */
	if (queue) {
		to->queue = queue->serial;
		to->waits_ms = jiffies_to_msecs(jiffies - READ_ONCE(thread->ready_since));
	}
}

/* Returns how many threads there are. */
static u32 collect(struct xk_sched_policy *policy, struct xk_sched_thread *threads, u32 places)
{
	const struct xk_thread *thread;
	u32 nr = 0;

	raw_spin_lock_irq(&policy->lock);
	list_for_each_entry(thread, &policy->threads, of_policy)
		if (nr++ < places)
			describe(thread, &threads[nr - 1]);
	raw_spin_unlock_irq(&policy->lock);
	return nr;
}

int xk_stats_dump(struct xk_sched_dump *request, struct xk_error *error)
{
	u32 places = min(request->nr_threads, MAX_THREADS);
	struct xk_sched_policy *policy = NULL;
	struct xk_sched_thread *threads = kvcalloc(max(places, 1u), sizeof(*threads), GFP_KERNEL);
	int ret = 0;

	if (!threads)
		return -ENOMEM;
	mutex_lock(&xk_policies_lock);
	if (strnlen(request->policy, XK_SCHED_NAME_LEN) < XK_SCHED_NAME_LEN)
		policy = xk_policy_find(request->policy);
	if (policy)
		request->nr_threads = collect(policy, threads, places);
	else
		ret = xk_refuse(error, -ENOENT, "no policy is called %.31s", request->policy);
	mutex_unlock(&xk_policies_lock);
	places = min(places, request->nr_threads);
	if (!ret && copy_to_user(u64_to_user_ptr(request->threads), threads,
				 places * sizeof(*threads)))
		ret = -EFAULT;
	kvfree(threads);
	return ret;
}
