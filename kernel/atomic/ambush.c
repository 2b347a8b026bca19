// SPDX-License-Identifier: GPL-2.0-only
/*
 * NMIs in the middle of the stop in which values change. The CPU that checks the threads sends NMIs
 * to all others, waits until each has read the constant, and continues. The others read the
 * constant repeatedly in the same NMI, on top of their own stoppers. They must see one value, the
 * previous one. In the other mode the NMIs are sent whenever text is about to be written, between
 * any two steps of a change. Each must see one value then, too.
 */
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <asm/apic.h>
#include <asm/nmi.h>

#include "atomic.h"

/* How long the checking CPU waits for the others at most. */
#define PATIENCE_US 20000
#define READ_EVERY_US 10

static unsigned int duration_us;
static atomic_t awaited;
static DEFINE_PER_CPU(bool, ambushed);
static DEFINE_PER_CPU(struct xk_atomic_count, counts);

/* The values that the last of these NMIs saw, on any CPU. */
static int last[2];

noinline __noclone int xk_atomic_in_stop(void)
{
	return xk_atomic_constant();
}

static int read_for_a_while(unsigned int type, struct pt_regs *regs)
{
	struct xk_atomic_count *count = this_cpu_ptr(&counts);
	unsigned int us;
	int first, next;

	if (!__this_cpu_read(ambushed))
		return NMI_DONE;
	__this_cpu_write(ambushed, false);
	first = xk_atomic_in_stop();
	next = first;
	atomic_dec(&awaited);
	for (us = 0; us < duration_us && next == first; us += READ_EVERY_US) {
		udelay(READ_EVERY_US);
		next = xk_atomic_in_stop();
	}
	xk_atomic_judge(count, first, next);
	/* Stored even if they agree, because tests read the value. */
	WRITE_ONCE(last[0], first);
	WRITE_ONCE(last[1], next);
	return NMI_HANDLED;
}

/* xk.ko begins to check threads in a stop, or text is written. */
static void notrace on_call(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			    struct ftrace_regs *regs)
{
	unsigned int cpu, us;

	for_each_online_cpu(cpu) {
		if (cpu == smp_processor_id())
			continue;
		per_cpu(ambushed, cpu) = true;
		atomic_inc(&awaited);
		apic->send_IPI(cpu, NMI_VECTOR);
	}
	for (us = 0; us < PATIENCE_US && atomic_read(&awaited) > 0; us++)
		udelay(1);
}

static struct ftrace_ops ops = {
	.func = on_call,
};

static int lie_in_wait(bool text)
{
	static char *const scans[] = { "xk_scan_all", "xk_scan_again" };
	static char *const writes[] = { "text_poke_kgdb" };
	char *const *functions = text ? writes : scans;
	unsigned int i, nr = text ? ARRAY_SIZE(writes) : ARRAY_SIZE(scans);
	int ret = 0;

	for (i = 0; i < nr && !ret; i++)
		ret = ftrace_set_filter(&ops, functions[i], strlen(functions[i]), !i);
	if (!ret)
		ret = register_nmi_handler(NMI_LOCAL, read_for_a_while, 0, "xk_atomic_stop");
	if (ret)
		return ret;
	ret = register_ftrace_function(&ops);
	if (ret)
		unregister_nmi_handler(NMI_LOCAL, "xk_atomic_stop");
	return ret;
}

/*
 * Makes each NMI last `us` microseconds, once in a stop or whenever text is written; 0 disables it.
 */
int xk_atomic_ambush(unsigned int us, bool text)
{
	unsigned int before = duration_us;
	int ret = 0;

	duration_us = us;
	if (us && !before) {
		ret = lie_in_wait(text);
	} else if (!us && before) {
		unregister_ftrace_function(&ops);
		unregister_nmi_handler(NMI_LOCAL, "xk_atomic_stop");
	}
	if (ret)
		duration_us = 0;
	return ret;
}

void xk_atomic_ambush_sum(struct xk_atomic_count *sum)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		const struct xk_atomic_count *count = per_cpu_ptr(&counts, cpu);

		sum->rounds += count->rounds;
		sum->violations += count->violations;
		sum->defaults += count->defaults;
	}
	memcpy(sum->last, last, sizeof(sum->last));
}
