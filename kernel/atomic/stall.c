// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holds a thread with one name in mutex_unlock() until it is released, at one of two places. Either
 * where it registers a probe: it has copied the instruction, and no one can find the probe yet;
 * register_kprobe() releases text_mutex after the copy. Or where it loads a module: xk.ko has
 * composed what it will write into the module and released text_mutex, but has not stopped the
 * machine yet.
 */
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "atomic.h"

#define NAME "xk_stalled"
/* More than the length of register_kprobe(). */
#define REACH 0x1000

static enum xk_atomic_stall stalls;
static bool stalled;

static void stay(struct mutex *mutex)
{
	mutex_unlock(mutex);
	WRITE_ONCE(stalled, true);
	while (READ_ONCE(stalls))
		msleep(20);
	WRITE_ONCE(stalled, false);
}

static bool notrace is_named(unsigned long address, const char *name)
{
	char symbol[KSYM_SYMBOL_LEN];

	snprintf(symbol, sizeof(symbol), "%ps", (void *)address);
	return !strcmp(symbol, name);
}

/* Other mutexes are released before the instruction is copied. */
static bool notrace registers(unsigned long parent, struct mutex *mutex)
{
	return parent - (unsigned long)register_kprobe < REACH &&
	       is_named((unsigned long)mutex, "text_mutex");
}

static bool notrace arms(unsigned long parent)
{
	return is_named(parent, "xk_text_unlock [xk]");
}

static void notrace on_unlock(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			      struct ftrace_regs *regs)
{
	struct mutex *mutex = (struct mutex *)ftrace_regs_get_argument(regs, 0);
	enum xk_atomic_stall where = READ_ONCE(stalls);

	if (!where || READ_ONCE(stalled) || strcmp(current->comm, NAME))
		return;
	if (where == XK_ATOMIC_STALL_REGISTERS ? registers(parent, mutex) : arms(parent))
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

/* The hook is removed when no thread is held any more. */
int xk_atomic_stall(enum xk_atomic_stall where)
{
	char function[] = "mutex_unlock";
	int ret;

	if (where == stalls)
		return 0;
	if (where) {
		ret = ftrace_set_filter(&ops, function, strlen(function), true);
		if (!ret)
			ret = register_ftrace_function(&ops);
		if (!ret)
			WRITE_ONCE(stalls, where);
		return ret;
	}
	WRITE_ONCE(stalls, XK_ATOMIC_STALL_NOWHERE);
	while (READ_ONCE(stalled))
		msleep(20);
	return unregister_ftrace_function(&ops);
}

static void after(struct kprobe *kprobe, struct pt_regs *regs, unsigned long flags)
{
}

/*
 * A probe of someone else, for the time at which xk.ko is held: it has checked, and found no probe.
 * A probe with a post-handler stays a breakpoint.
 */
static struct kprobe probe;

int xk_atomic_probe(bool on)
{
	int ret;

	if (on == !!probe.addr)
		return 0;
	if (on) {
		probe.symbol_name = "xk_target_value";
		probe.post_handler = after;
		ret = register_kprobe(&probe);
	} else {
		unregister_kprobe(&probe);
		ret = 0;
	}
	if (ret || !on)
		memset(&probe, 0, sizeof(probe));
	return ret;
}
