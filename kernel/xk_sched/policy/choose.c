// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads choose a policy. A thread joins a policy when it comes to sched_ext's class, so one that
 * changes from a policy to another is in the fair class for a moment.
 */
#include <linux/pid.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <uapi/linux/sched.h>

#include "base/error.h"
#include "model/thread.h"
#include "policy/choose.h"
#include "policy/eject.h"
#include "policy/list.h"
#include "uapi/xk_sched.h"

/* Threads of a process that start others all the time are followed so often. */
#define MAX_PASSES 100

/* Writes down the choice. -ESRCH: the thread has ended. 1: nothing is to be done. */
static int note(struct task_struct *task, struct xk_sched_policy *policy)
{
	struct xk_thread *thread;
	unsigned long flags;
	int ret = -ESRCH;

	raw_spin_lock_irqsave(&xk_threads_lock, flags);
	thread = xk_thread_find(task);
	if (thread) {
		ret = thread->choice == policy && READ_ONCE(thread->policy) == policy;
		thread->choice = policy;
	}
	raw_spin_unlock_irqrestore(&xk_threads_lock, flags);
	return ret;
}

static bool is_in(struct task_struct *task, struct xk_sched_policy *policy)
{
	struct xk_thread *thread;
	bool is;

	rcu_read_lock();
	thread = xk_thread_find(task);
	is = !thread || (READ_ONCE(thread->policy) == policy && READ_ONCE(policy->live));
	rcu_read_unlock();
	return is;
}

static int choose_one(struct task_struct *task, struct xk_sched_policy *policy)
{
	int ret = note(task, policy);

	if (ret < 0)
		return ret;
	if (ret == 1 && policy)
		return 0;
	if (task->policy == SCHED_EXT)
		ret = xk_to_fair(task);
	if (ret < 0 || !policy)
		return min(ret, 0);
	ret = xk_to_ext(task);
	if (!ret && is_in(task, policy))
		return 0;
	/* It was ejected meanwhile, or the kernel refused. */
	note(task, NULL);
	if (task->policy == SCHED_EXT)
		xk_to_fair(task);
	return ret ?: -ENODEV;
}

/* The next thread of the process that has not made this choice, with a reference. */
static struct task_struct *next_of(struct task_struct *leader, struct xk_sched_policy *policy)
{
	struct task_struct *task, *found = NULL;
	struct xk_thread *thread;

	rcu_read_lock();
	/*
	 * With CONFIG_PROVE_RCU_LIST, for_each_thread() looks at tasklist_lock, to which modules
	 * cannot link.
	 */
	list_for_each_entry_rcu(task, &leader->signal->thread_head, thread_node) {
		thread = xk_thread_find(task);
		if (!thread || (thread->choice == policy && READ_ONCE(thread->policy) == policy &&
				(policy || task->policy != SCHED_EXT)))
			continue;
		if (task->flags & PF_EXITING)
			continue;
		found = get_task_struct(task);
		break;
	}
	rcu_read_unlock();
	return found;
}

static int choose_all(struct task_struct *leader, struct xk_sched_policy *policy, u32 *nr)
{
	struct task_struct *task;
	unsigned int pass;
	int ret;

	for (pass = 0; pass < MAX_PASSES + get_nr_threads(leader); pass++) {
		task = next_of(leader, policy);
		if (!task)
			return 0;
		ret = choose_one(task, policy);
		put_task_struct(task);
		if (ret && ret != -ESRCH)
			return ret;
		*nr += !ret;
	}
	return -EAGAIN;
}

static int choose_locked(struct xk_sched_choice *choice, struct task_struct *task,
			 struct xk_error *error)
{
	struct xk_sched_policy *policy = NULL;
	int ret;

	if (*choice->policy) {
		policy = xk_policy_find(choice->policy);
		if (!policy)
			return xk_refuse(error, -ENOENT,
					 "no policy is called %s: load its module; 'xk sched list' shows those that are loaded",
					 choice->policy);
		if (!READ_ONCE(policy->live))
			return xk_refuse(error, -ENODEV,
					 "policy %s was ejected ('xk sched status' says why): remove its module and load it again",
					 choice->policy);
	}
	if (choice->flags & XK_SCHED_WHOLE_PROCESS) {
		ret = choose_all(task, policy, &choice->nr_threads);
	} else {
		ret = choose_one(task, policy);
		choice->nr_threads = !ret;
	}
	if (ret == -ENODEV)
		return xk_refuse(error, ret,
				 "policy %s was ejected while process %d (%s) was given to it: 'xk sched status' says why",
				 choice->policy, task->pid, task->comm);
	if (ret)
		xk_refuse(error, ret, "process %d (%s) does not get policy '%s' (%pe)", task->pid,
			  task->comm, choice->policy, ERR_PTR(ret));
	return ret;
}

int xk_choose(struct xk_sched_choice *choice, struct xk_error *error)
{
	struct task_struct *task;
	int ret;

	if (choice->flags & ~XK_SCHED_WHOLE_PROCESS)
		return xk_refuse(error, -EINVAL, "invalid flags: %#x", choice->flags);
	if (strnlen(choice->policy, XK_SCHED_NAME_LEN) == XK_SCHED_NAME_LEN)
		return xk_refuse(error, -EINVAL, "the name of the policy does not end");
	rcu_read_lock();
	task = choice->pid ? pid_task(find_vpid(choice->pid), PIDTYPE_PID) : current;
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	if (!task)
		return xk_refuse(error, -ESRCH, "there is no process %d", choice->pid);
	mutex_lock(&xk_policies_lock);
	choice->nr_threads = 0;
	ret = choose_locked(choice, task, error);
	mutex_unlock(&xk_policies_lock);
	put_task_struct(task);
	return ret;
}
