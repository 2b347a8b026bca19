// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions that read a constant more than once, and whose reads must agree. While one of their
 * frames is on the stack of a thread, the constant must not change for that thread. That is what a
 * safe span guarantees; violations are counted here. The functions are global and neither inlined
 * nor cloned, so user space finds each once, with every constant in it.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <asm/apic.h>
#include <asm/nmi.h>

#include "atomic.h"

#define SLEEPING (BIT(XK_ATOMIC_SLEEP) | BIT(XK_ATOMIC_ELSEWHERE))

const char *const xk_atomic_names[XK_ATOMIC_SPANS] = {
	[XK_ATOMIC_BALANCE] = "balance",
	[XK_ATOMIC_AGREE] = "agree",
	[XK_ATOMIC_OBJECT] = "object",
	[XK_ATOMIC_LATER] = "later",
	[XK_ATOMIC_RECURSE] = "recurse",
	[XK_ATOMIC_SOFTIRQ] = "softirq",
	[XK_ATOMIC_HARDIRQ] = "hardirq",
	[XK_ATOMIC_NMI] = "nmi",
	[XK_ATOMIC_SLEEP] = "sleep",
	[XK_ATOMIC_ELSEWHERE] = "elsewhere",
	[XK_ATOMIC_DESCEND] = "descend",
	[XK_ATOMIC_HOLD] = "hold",
	[XK_ATOMIC_STOP] = "stop",
};

static DECLARE_WAIT_QUEUE_HEAD(holders);
static unsigned int releases;

/* The thread that expects an NMI. At most one per CPU, because preemption is disabled. */
static DEFINE_PER_CPU(struct xk_atomic_thread *, expects_nmi);

/* The middle of a span: works, and sometimes lets others run. */
static noinline void middle(struct xk_atomic_thread *thread)
{
	udelay(READ_ONCE(xk_atomic_options.work));
	if (!thread->outside)
		usleep_range(1, 2);
}

static void judge(struct xk_atomic_thread *thread, enum xk_atomic_span span, int first,
		  int second)
{
	xk_atomic_judge(&thread->counts[span], first, second);
}

noinline __noclone void xk_atomic_balance(struct xk_atomic_thread *thread)
{
	int first = xk_atomic_constant(), second;

	thread->object += first;
	middle(thread);
	second = xk_atomic_constant();
	thread->object -= second;
	judge(thread, XK_ATOMIC_BALANCE, first, second);
}

noinline __noclone int xk_atomic_first(void)
{
	return xk_atomic_constant();
}

noinline __noclone int xk_atomic_second(void)
{
	return xk_atomic_constant();
}

noinline __noclone void xk_atomic_agree(struct xk_atomic_thread *thread)
{
	int first = xk_atomic_first();

	middle(thread);
	judge(thread, XK_ATOMIC_AGREE, first, xk_atomic_second());
}

noinline __noclone void xk_atomic_consume(struct xk_atomic_thread *thread, enum xk_atomic_span span)
{
	middle(thread);
	judge(thread, span, thread->object, xk_atomic_constant());
}

noinline __noclone void xk_atomic_object(struct xk_atomic_thread *thread)
{
	thread->object = xk_atomic_constant();
	xk_atomic_consume(thread, XK_ATOMIC_OBJECT);
	thread->object = 0;
}

noinline __noclone void xk_atomic_later(struct xk_atomic_thread *thread)
{
	thread->object = xk_atomic_constant();
	middle(thread);
	xk_atomic_consume(thread, XK_ATOMIC_LATER);
	thread->object = 0;
}

noinline __noclone void xk_atomic_recurse(struct xk_atomic_thread *thread, unsigned int depth)
{
	int first = xk_atomic_constant();

	if (depth)
		xk_atomic_recurse(thread, depth - 1);
	else
		middle(thread);
	judge(thread, XK_ATOMIC_RECURSE, first, xk_atomic_constant());
}

noinline __noclone int xk_atomic_in_softirq(void)
{
	return xk_atomic_constant();
}

static void above(struct tasklet_struct *tasklet)
{
	struct xk_atomic_thread *thread = from_tasklet(thread, tasklet, above);

	WRITE_ONCE(thread->seen, xk_atomic_in_softirq());
}

/* The tasklet runs when softirqs are enabled, on this stack. */
noinline __noclone void xk_atomic_softirq(struct xk_atomic_thread *thread)
{
	int first = xk_atomic_constant();

	middle(thread);
	local_bh_disable();
	WRITE_ONCE(thread->seen, 0);
	tasklet_schedule(&thread->above);
	local_bh_enable();
	/* Unless ksoftirqd ran it. */
	if (READ_ONCE(thread->seen))
		judge(thread, XK_ATOMIC_SOFTIRQ, first, thread->seen);
	tasklet_unlock_wait(&thread->above);
}

noinline __noclone int xk_atomic_in_hardirq(void)
{
	return xk_atomic_constant();
}

static void interrupt(struct irq_work *work)
{
	struct xk_atomic_thread *thread = container_of(work, struct xk_atomic_thread, work);

	WRITE_ONCE(thread->seen, xk_atomic_in_hardirq());
}

noinline __noclone void xk_atomic_hardirq(struct xk_atomic_thread *thread)
{
	int first = xk_atomic_constant();

	middle(thread);
	WRITE_ONCE(thread->seen, 0);
	preempt_disable();
	irq_work_queue(&thread->work);
	while (!READ_ONCE(thread->seen))
		cpu_relax();
	preempt_enable();
	judge(thread, XK_ATOMIC_HARDIRQ, first, thread->seen);
}

noinline __noclone int xk_atomic_in_nmi(void)
{
	return xk_atomic_constant();
}

static int nmi(unsigned int type, struct pt_regs *regs)
{
	struct xk_atomic_thread *thread = __this_cpu_read(expects_nmi);

	if (!thread || READ_ONCE(thread->seen))
		return NMI_DONE;
	WRITE_ONCE(thread->seen, xk_atomic_in_nmi());
	return NMI_HANDLED;
}

noinline __noclone void xk_atomic_nmi(struct xk_atomic_thread *thread)
{
	int first = xk_atomic_constant();

	middle(thread);
	WRITE_ONCE(thread->seen, 0);
	preempt_disable();
	__this_cpu_write(expects_nmi, thread);
	apic->send_IPI(smp_processor_id(), NMI_VECTOR);
	while (!READ_ONCE(thread->seen))
		cpu_relax();
	__this_cpu_write(expects_nmi, NULL);
	preempt_enable();
	judge(thread, XK_ATOMIC_NMI, first, thread->seen);
}

noinline __noclone void xk_atomic_sleep(struct xk_atomic_thread *thread)
{
	int first = xk_atomic_constant();
	unsigned int us = READ_ONCE(xk_atomic_options.sleep);

	usleep_range(us, us + us / 4);
	judge(thread, XK_ATOMIC_SLEEP, first, xk_atomic_constant());
}

noinline __noclone int xk_atomic_in_elsewhere(void)
{
	return xk_atomic_constant();
}

static void elsewhere(struct tasklet_struct *tasklet)
{
	struct xk_atomic_thread *thread = from_tasklet(thread, tasklet, elsewhere);

	thread->seen = xk_atomic_in_elsewhere();
	complete(&thread->done);
}

/* Usually runs in ksoftirqd, another thread: the value reaches it through memory. */
noinline __noclone void xk_atomic_elsewhere(struct xk_atomic_thread *thread)
{
	int first = xk_atomic_constant();

	reinit_completion(&thread->done);
	tasklet_schedule(&thread->elsewhere);
	wait_for_completion(&thread->done);
	judge(thread, XK_ATOMIC_ELSEWHERE, first, thread->seen);
}

/* The span is the chain of calls; the constant is at its end. */
noinline __noclone void xk_atomic_descend(struct xk_atomic_thread *thread, unsigned int depth)
{
	int first;

	if (depth) {
		udelay(READ_ONCE(xk_atomic_options.work));
		xk_atomic_descend(thread, depth - 1);
		udelay(READ_ONCE(xk_atomic_options.work));
		return;
	}
	first = xk_atomic_constant();
	middle(thread);
	judge(thread, XK_ATOMIC_DESCEND, first, xk_atomic_constant());
}

/* The same constant as below, for callers that need its value. */
noinline __noclone int xk_atomic_value(void)
{
	return xk_atomic_constant();
}

/* The wait is killable, but otherwise lasts until the release. */
noinline __noclone int xk_atomic_hold(unsigned int ms, int values[2])
{
	unsigned int seen = READ_ONCE(releases);
	long left;

	values[0] = xk_atomic_constant();
	left = wait_event_killable_timeout(holders, READ_ONCE(releases) != seen,
					   msecs_to_jiffies(ms));
	values[1] = xk_atomic_constant();
	return left < 0 ? left : 0;
}

/* No span at all. */
noinline __noclone int xk_atomic_rest(unsigned int ms, int values[2])
{
	unsigned int seen = READ_ONCE(releases);

	values[0] = XK_ATOMIC_DEFAULT;
	values[1] = XK_ATOMIC_DEFAULT;
	wait_event_killable(holders, READ_ONCE(releases) != seen);
	return 0;
}

/* A span that is never left: its thread ends inside. */
noinline __noclone void xk_atomic_exit_inside(void)
{
	unsigned int seen = READ_ONCE(releases);
	int value = xk_atomic_constant();

	wait_event_killable(holders, READ_ONCE(releases) != seen);
	/*
	 * Always true. The condition is needed because a function that never returns cannot be
	 * analysed to its end.
	 */
	if (value)
		module_put_and_kthread_exit(0);
}

void xk_atomic_release(void)
{
	WRITE_ONCE(releases, releases + 1);
	wake_up_all(&holders);
}

void xk_atomic_prepare(struct xk_atomic_thread *thread)
{
	tasklet_setup(&thread->above, above);
	tasklet_setup(&thread->elsewhere, elsewhere);
	init_irq_work(&thread->work, interrupt);
	init_completion(&thread->done);
}

void xk_atomic_forget(struct xk_atomic_thread *thread)
{
	tasklet_kill(&thread->above);
	tasklet_kill(&thread->elsewhere);
	irq_work_sync(&thread->work);
}

static void recurse(struct xk_atomic_thread *thread)
{
	xk_atomic_recurse(thread, READ_ONCE(xk_atomic_options.depth));
}

static void descend(struct xk_atomic_thread *thread)
{
	xk_atomic_descend(thread, READ_ONCE(xk_atomic_options.depth));
}

static void (*const run[XK_ATOMIC_SPANS])(struct xk_atomic_thread *thread) = {
	[XK_ATOMIC_BALANCE] = xk_atomic_balance,
	[XK_ATOMIC_AGREE] = xk_atomic_agree,
	[XK_ATOMIC_OBJECT] = xk_atomic_object,
	[XK_ATOMIC_LATER] = xk_atomic_later,
	[XK_ATOMIC_RECURSE] = recurse,
	[XK_ATOMIC_SOFTIRQ] = xk_atomic_softirq,
	[XK_ATOMIC_HARDIRQ] = xk_atomic_hardirq,
	[XK_ATOMIC_NMI] = xk_atomic_nmi,
	[XK_ATOMIC_SLEEP] = xk_atomic_sleep,
	[XK_ATOMIC_ELSEWHERE] = xk_atomic_elsewhere,
	[XK_ATOMIC_DESCEND] = descend,
};

/* Enters each selected span once. Those that sleep are entered in some rounds only. */
void xk_atomic_round(struct xk_atomic_thread *thread)
{
	unsigned int inside = READ_ONCE(xk_atomic_options.inside);
	unsigned long spans = READ_ONCE(xk_atomic_options.spans);
	unsigned int span;

	for_each_set_bit(span, &spans, XK_ATOMIC_SPANS) {
		thread->outside = !inside || prandom_u32_state(&thread->random) % inside;
		if (thread->outside && (BIT(span) & SLEEPING))
			continue;
		if (run[span])
			run[span](thread);
	}
}

int xk_atomic_spans_init(void)
{
	return register_nmi_handler(NMI_LOCAL, nmi, 0, "xk_atomic");
}

void xk_atomic_spans_exit(void)
{
	unregister_nmi_handler(NMI_LOCAL, "xk_atomic");
}
