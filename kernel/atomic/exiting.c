// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that are inside a span while they exit, when the thread list no longer contains them. For
 * threads with one name, a function that do_exit() calls after exit_notify() is replaced. They hold
 * the constant there until they are released.
 */
#include <linux/ftrace.h>
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "atomic.h"

#define NAME "xk_detained"
#define LONG_MS 600000

static bool detains;
static atomic_t detained;

/*
 * The first one that exists in the kernel is replaced. The threads then miss a notification (the
 * first), or the accounting of their stack (the second).
 */
static const char *const functions[] = { "proc_exit_connector", "exit_task_stack_account" };

static void detain(struct task_struct *task)
{
	atomic_inc(&detained);
	xk_atomic_hold_once(LONG_MS);
	atomic_dec(&detained);
}

static void notrace on_exit(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			    struct ftrace_regs *regs)
{
	/*
	 * A thread of a multithreaded process releases itself; a single thread is released by
	 * others.
	 */
	if (ftrace_regs_get_argument(regs, 0) == (unsigned long)current &&
	    !strcmp(current->comm, NAME))
		ftrace_regs_set_instruction_pointer(regs, (unsigned long)detain);
}

static struct ftrace_ops ops = {
	.func = on_exit,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_SAVE_REGS,
};

unsigned int xk_atomic_detained(void)
{
	return atomic_read(&detained);
}

static int choose_function(void)
{
	char name[KSYM_NAME_LEN];
	unsigned int i;
	int ret = -ENOENT;

	for (i = 0; i < ARRAY_SIZE(functions) && ret; i++) {
		strscpy(name, functions[i]);
		ret = ftrace_set_filter(&ops, name, strlen(name), true);
	}
	return ret;
}

int xk_atomic_detain(bool on)
{
	int ret = 0;

	if (on == detains)
		return 0;
	if (on)
		ret = choose_function();
	if (!ret)
		ret = on ? register_ftrace_function(&ops) : unregister_ftrace_function(&ops);
	if (!ret)
		detains = on;
	return ret;
}
