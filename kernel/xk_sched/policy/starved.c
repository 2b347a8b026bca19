// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that wait too long. sched_ext would eject the whole scheduler after 30 s, so they are
 * found earlier. If the policy was asked meanwhile and chose nobody, it has lost the thread, and is
 * ejected. If it chose others, or was not asked because other classes use the CPU, it may be
 * innocent: then only this thread goes to the fair class. So does one that was chosen, if other
 * classes do not let it run.
 */
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/sched/task.h>

#include "event/report.h"
#include "model/core.h"
#include "model/thread.h"
#include "policy/eject.h"
#include "policy/list.h"
#include "policy/starved.h"

static unsigned int timeout_ms = 10000;
module_param(timeout_ms, uint, 0644);
MODULE_PARM_DESC(timeout_ms, "how long a thread may be ready before it is given to the fair class");

static void look(struct work_struct *work);
static DECLARE_DELAYED_WORK(looking, look);

static bool is_past(unsigned long since)
{
	return time_after(jiffies, since + msecs_to_jiffies(timeout_ms));
}

/*
 * It is in no queue of ours, and has not run since it was chosen, or stopped for another class.
 * Without the lock of the run queue, so at worst a thread goes to the fair class that has just run.
 * sched_ext counts from when the thread woke, even if it changed its policy since.
 */
static bool is_kept_from_running(const struct xk_thread *thread)
{
	const struct sched_ext_entity *scx = &thread->task->scx;

	return !list_empty_careful(&scx->runnable_node) && is_past(READ_ONCE(scx->runnable_at)) &&
	       is_past(thread->ready_since);
}

/* With the lock of the policy. Whether the policy is innocent of a thread that waits too long. */
static bool is_overdue(struct xk_sched_policy *policy, struct xk_thread *thread)
{
	struct xk_core *core = xk_core_lock(thread);
	struct xk_policy_core *own = per_cpu_ptr(policy->cores, thread->core);
	const struct xk_fault fault = {
		.policy = policy,
		.event = XK_SCHEDULE,
		.thread = thread,
		.core = thread->core,
		.from = XK_READY,
		.to = XK_READY,
	};
	bool overdue;

	overdue = thread->queue ? is_past(thread->ready_since) : is_kept_from_running(thread);
	if (overdue && thread->queue && own->nr_declined != thread->nr_declined) {
		xk_report(&fault,
			  "it has waited for %u ms, and the policy was asked and chose nobody",
			  jiffies_to_msecs(jiffies - thread->ready_since));
		overdue = false;
	}
	raw_spin_unlock(&core->lock);
	return overdue;
}

/* Returns whether there may be more. */
static bool look_at(struct xk_sched_policy *policy)
{
	struct task_struct *task = NULL;
	struct xk_thread *thread;
	bool more;

	raw_spin_lock_irq(&policy->lock);
	list_for_each_entry(thread, &policy->threads, of_policy) {
		if (!READ_ONCE(policy->live))
			break;
		if (is_overdue(policy, thread)) {
			task = get_task_struct(thread->task);
			policy->nr_overdue++;
			break;
		}
	}
	raw_spin_unlock_irq(&policy->lock);
	if (!task)
		return false;
	pr_warn_ratelimited("xk_sched: %s[%d] of policy %s has waited for more than %u ms and goes to the fair class\n",
			    task->comm, task->pid, policy->name, timeout_ms);
	more = !xk_to_fair(task);
	put_task_struct(task);
	return more;
}

static void look(struct work_struct *work)
{
	unsigned int id;

	mutex_lock(&xk_policies_lock);
	for (id = 0; id < XK_MAX_POLICIES; id++)
		while (xk_policies[id] && READ_ONCE(xk_policies[id]->live) &&
		       look_at(xk_policies[id]))
			cond_resched();
	mutex_unlock(&xk_policies_lock);
	schedule_delayed_work(&looking, msecs_to_jiffies(max(timeout_ms / 4, 1u)));
}

void xk_starved_init(void)
{
	schedule_delayed_work(&looking, msecs_to_jiffies(timeout_ms / 4));
}

void xk_starved_exit(void)
{
	cancel_delayed_work_sync(&looking);
}
