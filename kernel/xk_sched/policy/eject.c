// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads of a policy go to the fair class. The kernel takes a thread out of our queues when its
 * class changes, wherever it is, so this also rescues threads that the policy has lost.
 */
#include <linux/delay.h>
#include <linux/kernel.h>
#include <linux/sched/task.h>
#include <uapi/linux/sched.h>
#include <uapi/linux/sched/types.h>

#include "event/report.h"
#include "event/trace.h"
#include "model/state.h"
#include "model/thread.h"
#include "policy/eject.h"

#define BATCH 32
/* Threads that are named in the kernel's log. */
#define LOGGED 16

static struct workqueue_struct *ejections;

static int set_class(struct task_struct *task, u32 policy)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = policy,
		.sched_nice = task_nice(task),
	};

	return sched_setattr_nocheck(task, &attr);
}

int xk_to_fair(struct task_struct *task)
{
	return set_class(task, SCHED_NORMAL);
}

int xk_to_ext(struct task_struct *task)
{
	return set_class(task, SCHED_EXT);
}

struct batch {
	struct xk_sched_policy *policy;	/* NULL: of threads without one */
	struct task_struct *tasks[BATCH];
	unsigned int nr;
	bool unfinished;	/* a fork is not */
};

static bool take(struct batch *batch, struct xk_thread *thread)
{
	batch->tasks[batch->nr++] = get_task_struct(thread->task);
	return batch->nr == BATCH;
}

static bool collect(struct xk_thread *thread, void *data)
{
	struct batch *batch = data;

	if (thread->choice != batch->policy && READ_ONCE(thread->policy) != batch->policy)
		return false;
	/* The class of a task that is being forked does not change yet. */
	if (thread->task->policy == SCHED_EXT && !READ_ONCE(thread->enabled)) {
		batch->unfinished = true;
		return false;
	}
	return take(batch, thread);
}

static bool collect_stray(struct xk_thread *thread, void *data)
{
	return READ_ONCE(thread->enabled) && !READ_ONCE(thread->policy) && take(data, thread);
}

static void forget(struct task_struct *task, struct xk_sched_policy *policy)
{
	struct xk_thread *thread;
	unsigned long flags;

	raw_spin_lock_irqsave(&xk_threads_lock, flags);
	thread = xk_thread_find(task);
	if (thread && thread->choice == policy)
		thread->choice = NULL;
	raw_spin_unlock_irqrestore(&xk_threads_lock, flags);
}

/* First the class, then the choice: what is forked in between is found in the next pass. */
void xk_eject_threads(struct xk_sched_policy *policy)
{
	struct batch batch;
	unsigned int i;

	do {
		batch = (struct batch){ .policy = policy };
		xk_threads_visit(collect, &batch);
		for (i = 0; i < batch.nr; i++) {
			if (batch.tasks[i]->policy == SCHED_EXT)
				xk_to_fair(batch.tasks[i]);
			forget(batch.tasks[i], policy);
			put_task_struct(batch.tasks[i]);
		}
		if (batch.unfinished)
			msleep(20);
	} while (batch.nr || batch.unfinished);
}

/*
 * A policy that is removed does not see a thread whose fork began before and has not reached
 * sched_ext: it comes to the class later, without a policy.
 */
void xk_eject_strays(void)
{
	struct batch batch;
	unsigned int i;

	do {
		batch = (struct batch){};
		xk_threads_visit(collect_stray, &batch);
		for (i = 0; i < batch.nr; i++) {
			xk_to_fair(batch.tasks[i]);
			put_task_struct(batch.tasks[i]);
		}
	} while (batch.nr == BATCH);
}

static void eject_strays(struct work_struct *work)
{
	xk_eject_strays();
}

static DECLARE_WORK(straying, eject_strays);

static void start_straying(struct irq_work *work)
{
	queue_work(ejections, &straying);
}

static DEFINE_IRQ_WORK(stray, start_straying);

void xk_eject_stray(void)
{
	irq_work_queue(&stray);
}

/* A console wakes threads, which takes run queue locks: nothing is printed with the lock. */
static void log_threads(struct xk_sched_policy *policy)
{
	struct {
		char comm[TASK_COMM_LEN];
		pid_t pid;
		enum xk_state state;
		int core;
	} shown[LOGGED];
	unsigned int nr = 0, all, i;
	struct xk_thread *thread;

	raw_spin_lock_irq(&policy->lock);
	all = policy->nr_threads;
	list_for_each_entry(thread, &policy->threads, of_policy) {
		if (nr == LOGGED)
			break;
		strscpy(shown[nr].comm, thread->task->comm);
		shown[nr].pid = thread->task->pid;
		shown[nr].state = READ_ONCE(thread->state);
		shown[nr++].core = READ_ONCE(thread->core);
	}
	raw_spin_unlock_irq(&policy->lock);
	pr_warn("xk_sched: %s: %u threads go to the fair class\n", policy->name, all);
	for (i = 0; i < nr; i++)
		pr_warn("xk_sched: %s: %s[%d] %s on core %d\n", policy->name, shown[i].comm,
			shown[i].pid, xk_state_name(shown[i].state), shown[i].core);
}

static void eject(struct work_struct *work)
{
	struct xk_sched_policy *policy = container_of(work, struct xk_sched_policy, eject);
	struct xk_sched_report report = {};
	bool is_found = false;
	unsigned int i;

	for (i = 0; !is_found && !xk_report_read(i, &report); i++)
		is_found = !strcmp(report.policy, policy->name);
	if (is_found)
		trace_xk_sched_eject(&report);
	if (is_found)
		pr_warn("xk_sched: %s is ejected: %s of %s[%d] on core %d, %s -> %s: %s\n",
			policy->name, report.event, report.comm, report.pid, report.core,
			report.from, report.to, report.text);
	else
		pr_warn("xk_sched: %s is ejected: newer reports have replaced its own\n",
			policy->name);
	log_threads(policy);
	xk_eject_threads(policy);
}

static void start(struct irq_work *work)
{
	queue_work(ejections, &container_of(work, struct xk_sched_policy, ejecting)->eject);
}

void xk_eject_prepare(struct xk_sched_policy *policy)
{
	init_irq_work(&policy->ejecting, start);
	INIT_WORK(&policy->eject, eject);
}

void xk_eject_wait(struct xk_sched_policy *policy)
{
	irq_work_sync(&policy->ejecting);
	flush_work(&policy->eject);
}

int xk_eject_init(void)
{
	ejections = alloc_workqueue("xk_sched", WQ_HIGHPRI | WQ_UNBOUND, 0);
	return ejections ? 0 : -ENOMEM;
}

void xk_eject_exit(void)
{
	irq_work_sync(&stray);
	destroy_workqueue(ejections);
}
