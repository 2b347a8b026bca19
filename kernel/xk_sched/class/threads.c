// SPDX-License-Identifier: GPL-2.0-only
/*
 * What sched_ext says about threads, as events of their policies. A thread without a policy, or
 * whose policy was ejected, runs in the order in which it comes until it is in the fair class.
 */
#include <linux/sched.h>
#include <linux/sched/ext.h>

#include "class/class.h"
#include "event/call.h"
#include "ext/kernel.h"
#include "model/cpus.h"
#include "model/thread.h"
#include "policy/cpus.h"
#include "policy/eject.h"
#include "policy/list.h"
#include "policy/share.h"

static bool has_policy(const struct xk_thread *thread)
{
	return likely(thread && thread->policy);
}

/* With the pi_lock of the task. Not called for a task that may run on one CPU only. */
s32 xk_class_select_cpu(struct task_struct *task, s32 prev_cpu, u64 flags)
{
	struct xk_thread *thread = xk_thread_of(task);

	return has_policy(thread) ? xk_call_prepare(thread, prev_cpu) : prev_cpu;
}

/* With the run queue lock of the CPU on which the task will be placed, like all that follow. */
void xk_class_enqueue(struct task_struct *task, u64 flags)
{
	struct xk_thread *thread = xk_thread_of(task);
	bool next = false;

	if (!has_policy(thread) || !xk_call_place(thread, task_cpu(task), &next))
		xk_ext_run(task, SCX_SLICE_DFL, 0);
	else if (next)
		xk_ext_run(task, thread->policy->slice_ns, 0);
}

/* Also called when a task that was given to a local queue has arrived there. */
void xk_class_dequeue(struct task_struct *task, u64 flags)
{
	struct xk_thread *thread = xk_thread_of(task);

	if (flags && has_policy(thread))
		xk_call_oust(thread);
}

void xk_class_tick(struct task_struct *task)
{
	struct xk_thread *thread = xk_thread_of(task);

	if (!has_policy(thread))
		return;
	/* If it yielded, there was no other thread. */
	thread->yielded = false;
	if (xk_call_tick(thread) | xk_share_tick(thread))
		task->scx.slice = 0;
	if (unlikely(!xk_is_home(thread, task_cpu(task))))
		xk_displace();
}

bool xk_class_yield(struct task_struct *from, struct task_struct *to)
{
	struct xk_thread *thread = xk_thread_of(from);

	/* yield_to() of virtual machines: the other thread keeps its turn. */
	if (to)
		return false;
	if (thread)
		thread->yielded = true;
	from->scx.slice = 0;
	return false;
}

/* A task that changes its attributes while it runs also comes here, and does not sleep. */
void xk_class_quiescent(struct task_struct *task, u64 flags)
{
	struct xk_thread *thread = xk_thread_of(task);

	if ((flags & SCX_DEQ_SLEEP) && has_policy(thread) &&
	    READ_ONCE(task->__state) != TASK_DEAD)
		xk_call_block(thread);
}

/* May sleep; no lock is held. */
s32 xk_class_init_task(struct task_struct *task, struct scx_init_task_args *args)
{
	return xk_thread_add(task, args->fork ? current : NULL);
}

void xk_class_exit_task(struct task_struct *task, struct scx_exit_task_args *args)
{
	xk_thread_remove(task);
}

void xk_class_enable(struct task_struct *task)
{
	struct xk_thread *thread = xk_thread_enter(task);
	struct xk_sched_policy *policy;

	if (WARN_ON_ONCE(!thread))
		return;
	raw_spin_lock(&xk_threads_lock);
	policy = thread->choice;
	raw_spin_unlock(&xk_threads_lock);
	WRITE_ONCE(thread->enabled, true);
	if (policy && READ_ONCE(policy->live))
		xk_policy_join(policy, thread);
	else
		xk_eject_stray();
}

void xk_class_disable(struct task_struct *task)
{
	struct xk_thread *thread = xk_thread_of(task);

	if (!thread)
		return;
	if (thread->policy) {
		xk_call_terminate(thread);
		xk_policy_leave(thread);
	}
	WRITE_ONCE(thread->enabled, false);
	xk_thread_exit(task);
}
