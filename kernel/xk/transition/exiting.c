// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exiting threads. release_task() removes a thread from the thread list while the thread still
 * runs. It continues in do_exit(), where it may sleep and be preempted, until it disables
 * preemption and calls do_task_dead(). A search for threads inside a function must find these
 * threads, too. (RCU tasks has the same gap, and a list of its own: kernel/rcu/tasks.h.)
 *
 * A thread enters this table before it can be released, at the tracepoint sched_process_exit. It
 * leaves the table in do_task_dead(). The thread itself makes both calls, so nothing else changes
 * its entry.
 */
#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/completion.h>
#include <linux/ftrace.h>
#include <linux/hash.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "transition/exiting.h"
#include "model/tune.h"

#define TABLE_BITS 12
#define TABLE_SIZE BIT(TABLE_BITS)
/* Entries that a thread tries. */
#define PROBES 64

/*
 * Each entry holds a reference. The names of get_task_struct() and put_task_struct() are in
 * parentheses so that macros of kernel/faulty do not replace them: it counts what xk.ko holds, and
 * the number of exiting threads does not depend on xk.ko.
 */
static struct task_struct *table[TABLE_SIZE];
/* Threads that found no entry and have not ended yet. */
static atomic_t lost;

static struct task_struct **entry_of(const struct task_struct *task, unsigned int probe)
{
	return &table[(hash_ptr(task, TABLE_BITS) + probe) % TABLE_SIZE];
}

static void notrace on_exit(void *unused, struct task_struct *unused_task)
{
	unsigned int i;

	(get_task_struct)(current);
	for (i = 0; i < PROBES; i++)
		if (!READ_ONCE(*entry_of(current, i)) &&
		    !cmpxchg(entry_of(current, i), NULL, current))
			return;
	(put_task_struct)(current);
	atomic_inc(&lost);
}

/* Preemption is disabled, and stays disabled until the thread is switched out for good. */
static void notrace on_dead(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			    struct ftrace_regs *regs)
{
	unsigned int i;

	for (i = 0; i < PROBES; i++) {
		if (READ_ONCE(*entry_of(current, i)) != current)
			continue;
		WRITE_ONCE(*entry_of(current, i), NULL);
		(put_task_struct)(current);
		return;
	}
	/* No entry: the table was full, or the thread began to exit before xk.ko was loaded. */
	atomic_dec_if_positive(&lost);
}

/* PERMANENT: kernel.ftrace_enabled cannot be set to 0 as long as this is registered. */
static struct ftrace_ops dead = {
	.func = on_dead,
	.flags = FTRACE_OPS_FL_PERMANENT,
};

static struct tracepoint *exits;

static void find_tracepoint(struct tracepoint *tracepoint, void *unused)
{
	if (!strcmp(tracepoint->name, "sched_process_exit"))
		exits = tracepoint;
}

/*
 * Threads that began to exit before the tracepoint was registered are not in the table. After a
 * grace period of RCU tasks, each of them has ended, or has slept since and holds no text.
 */
static void wait_for_others(struct work_struct *unused)
{
	synchronize_rcu_tasks();
}

static DECLARE_WORK(others, wait_for_others);

void xk_exiting_wait(void)
{
	flush_work(&others);
}

bool xk_visit_exiting(void (*visit)(struct task_struct *task, void *data), void *data)
{
	unsigned int i;

	for (i = 0; i < TABLE_SIZE; i++) {
		struct task_struct *task = READ_ONCE(table[i]);

		/* Threads that still have a PID are on the thread list. */
		if (task && !pid_alive(task))
			visit(task, data);
	}
	return !atomic_read(&lost);
}

int xk_exiting_init(void)
{
	char function[] = "do_task_dead";
	int ret;

	for_each_kernel_tracepoint(find_tracepoint, NULL);
	if (!exits)
		return -ENOENT;
	ret = ftrace_set_filter(&dead, function, strlen(function), true);
	if (!ret)
		ret = register_ftrace_function(&dead);
	if (ret) {
		pr_err("xk: cannot track exiting threads%s\n",
		       ret == -EBUSY ? ": kernel.ftrace_enabled is 0, set it to 1 first" : "");
		ftrace_free_filter(&dead);
		return ret;
	}
	ret = tracepoint_probe_register(exits, on_exit, NULL);
	if (ret) {
		unregister_ftrace_function(&dead);
		ftrace_free_filter(&dead);
		return ret;
	}
	queue_work(xk_workqueue, &others);
	return 0;
}

void xk_exiting_exit(void)
{
	unsigned int i;

	cancel_work_sync(&others);
	tracepoint_probe_unregister(exits, on_exit, NULL);
	tracepoint_synchronize_unregister();
	unregister_ftrace_function(&dead);
	ftrace_free_filter(&dead);
	for (i = 0; i < TABLE_SIZE; i++)
		if (table[i])
			(put_task_struct)(table[i]);
}
