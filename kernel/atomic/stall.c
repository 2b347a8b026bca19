// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread that registers a probe and is held in the middle: it has copied the
 * instruction, and nobody finds the probe yet. Behind the copy, register_kprobe() gives
 * up text_mutex; a thread of one name stays in mutex_unlock() then until it is released.
 */
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "atomic.h"

#define NAME "xk_stalled"
/* More than register_kprobe() has. */
#define REACH 0x1000

static bool stalls;
static bool stalled;
/* The first that it gives up: kprobe_mutex, before anything is copied. */
static struct mutex *first;

static void stay(struct mutex *mutex)
{
	mutex_unlock(mutex);
	WRITE_ONCE(stalled, true);
	while (READ_ONCE(stalls))
		msleep(20);
	WRITE_ONCE(stalled, false);
}

static void notrace on_unlock(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			      struct ftrace_regs *regs)
{
	struct mutex *mutex = (struct mutex *)ftrace_regs_get_argument(regs, 0);

	if (!READ_ONCE(stalls) || READ_ONCE(stalled) || strcmp(current->comm, NAME) ||
	    parent - (unsigned long)register_kprobe >= REACH)
		return;
	if (!first)
		first = mutex;
	if (mutex != first)
		ftrace_regs_set_instruction_pointer(regs, (unsigned long)stay);
}

static struct ftrace_ops ops = {
	.func = on_unlock,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_SAVE_REGS,
};

bool xk_atomic_stalled(void)
{
	return READ_ONCE(stalled);
}

/* The hook goes when nobody is held any more. */
int xk_atomic_stall(bool on)
{
	char function[] = "mutex_unlock";
	int ret;

	if (on == stalls)
		return 0;
	if (on) {
		first = NULL;
		ret = ftrace_set_filter(&ops, function, strlen(function), true);
		if (!ret)
			ret = register_ftrace_function(&ops);
		WRITE_ONCE(stalls, !ret);
		return ret;
	}
	WRITE_ONCE(stalls, false);
	while (READ_ONCE(stalled))
		msleep(20);
	return unregister_ftrace_function(&ops);
}
