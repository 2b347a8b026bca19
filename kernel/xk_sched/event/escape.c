// SPDX-License-Identifier: GPL-2.0-only
/*
 * An event that loops, or that accesses memory that it may not, is left: this CPU goes on where the
 * event would have returned, and the policy is ejected. This is sound where the interrupted code
 * holds nothing that others wait for, and changes nothing that others read:
 *
 * - The instruction belongs to the policy's module, or to a helper of ours that only reads. It is
 *   not in a function of the kernel, which might hold a lock.
 * - preempt_count() and the nesting of rcu_read_lock() are what they were when the event began, so
 *   the policy holds no spin lock.
 * - No tracer attends to the return of a function that would not return.
 *
 * What the policy was changing in its own memory stays as it is. No event is called again.
 */
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <asm/ptrace.h>

#include "base/error.h"
#include "event/escape.h"
#include "event/report.h"
#include "event/watch.h"
#include "ext/kernel.h"

/* `own`: what the caller has added to preempt_count(). Notifiers run in one rcu_read_lock(). */
static bool holds_nothing(const struct xk_context *context, int own)
{
	const int mask = PREEMPT_MASK | SOFTIRQ_MASK;

	return (preempt_count() & mask) == (context->preempt_count & mask) + own &&
	       xk_rcu_nesting() <= context->rcu_nesting + 1;
}

/* What a tracer has put in place of return addresses of functions to whose return it attends. */
static unsigned long tracers[2];

static bool is_tracer(unsigned long word)
{
	return word && (word == tracers[0] || word == tracers[1]);
}

NOKPROBE_SYMBOL(is_tracer);

static bool is_traced(const struct xk_context *context, const struct pt_regs *regs)
{
	const unsigned long *word = (const unsigned long *)regs->sp;

	for (; word < (const unsigned long *)context->stack; word++)
		if (is_tracer(READ_ONCE_NOCHECK(*word)))
			return true;
	return false;
}

NOKPROBE_SYMBOL(is_traced);

/* The instruction; if the event called through a bad pointer, that of the call. */
static unsigned long address(const struct pt_regs *regs)
{
	return regs->ip < TASK_SIZE_MAX ? READ_ONCE_NOCHECK(*(const unsigned long *)regs->sp) :
					  regs->ip;
}

static bool may_leave(const struct xk_context *context, const struct pt_regs *regs, int own)
{
	unsigned long at;

	if (context->event == XK_NO_EVENT || regs->sp >= context->stack ||
	    !holds_nothing(context, own) || is_traced(context, regs))
		return false;
	at = address(regs);
	return within_module(at, context->policy->owner) ||
	       (within_module(at, THIS_MODULE) && !context->changing);
}

NOKPROBE_SYMBOL(may_leave);

static bool escape(struct pt_regs *regs, enum xk_escape why, int own)
{
	struct xk_context *context;

	/* Interrupts are off in events, so this CPU stays this one. */
	if (user_mode(regs) || regs->flags & X86_EFLAGS_IF)
		return false;
	context = this_cpu_ptr(&xk_context);
	if (!may_leave(context, regs, own))
		return false;
	context->left = why;
	context->left_at = address(regs);
	context->changing = false;
	xk_ext_forget_frames(regs->sp, context->stack);
	regs->bx = context->preserved[0];
	regs->bp = context->preserved[1];
	regs->r12 = context->preserved[2];
	regs->r13 = context->preserved[3];
	regs->r14 = context->preserved[4];
	regs->r15 = context->preserved[5];
	regs->ip = (unsigned long)xk_event_returned;
	regs->sp = context->stack;
	regs->ax = 0;
	regs->flags &= ~(X86_EFLAGS_IF | X86_EFLAGS_DF | X86_EFLAGS_AC | X86_EFLAGS_TF);
	return true;
}

NOKPROBE_SYMBOL(escape);

bool xk_escape(struct pt_regs *regs, enum xk_escape why)
{
	return escape(regs, why, 0);
}

NOKPROBE_SYMBOL(xk_escape);

void xk_escape_report(struct xk_context *context)
{
	const struct xk_thread *thread = context->thread;
	const struct xk_fault fault = {
		.policy = context->policy,
		.event = context->event,
		.thread = thread,
		.core = context->core,
		.from = thread ? thread->state : XK_NOT_QUEUED,
		.to = thread ? thread->state : XK_NOT_QUEUED,
	};
	enum xk_escape left = context->left;

	context->left = XK_NOT_LEFT;
	if (left == XK_LEFT_LATE)
		xk_report(&fault, "it took longer than %u ms, and was left at %pS",
			  xk_watch_budget(), (void *)context->left_at);
	else
		xk_report(&fault, "it caused an exception at %pS, and was left",
			  (void *)context->left_at);
}

/* Exceptions other than page faults. */
static int notify(struct notifier_block *block, unsigned long reason, void *data)
{
	struct die_args *args = data;

	if (reason != DIE_GPF && reason != DIE_TRAP)
		return NOTIFY_DONE;
	return xk_escape(args->regs, XK_LEFT_FAULTY) ? NOTIFY_STOP : NOTIFY_DONE;
}

NOKPROBE_SYMBOL(notify);

static struct notifier_block exceptions = { .notifier_call = notify };

/* The kernel reports a page fault before it asks the notifiers. */
static int before_oops(struct kprobe *kprobe, struct pt_regs *regs)
{
	/* Handlers of kprobes run with preemption off. */
	if (!escape((struct pt_regs *)regs->di, XK_LEFT_FAULTY, 1))
		return 0;
	/* page_fault_oops() returns at once. */
	regs->ip = (unsigned long)xk_return;
	return 1;
}

NOKPROBE_SYMBOL(before_oops);

/* With it, the kprobe is never optimised to a jump, which could not skip the function. */
static void after(struct kprobe *kprobe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe oops = {
	.symbol_name = "page_fault_oops",
	.pre_handler = before_oops,
	.post_handler = after,
};

int xk_escape_init(struct xk_error *error)
{
	int ret;

	tracers[0] = xk_ext_address("return_to_handler");
	tracers[1] = xk_ext_address("arch_rethook_trampoline");
	ret = register_die_notifier(&exceptions);
	if (ret)
		return ret;
	ret = register_kprobe(&oops);
	if (ret) {
		unregister_die_notifier(&exceptions);
		return xk_refuse(error, ret, "kprobes do not find page_fault_oops (%d)", ret);
	}
	return 0;
}

void xk_escape_exit(void)
{
	unregister_kprobe(&oops);
	unregister_die_notifier(&exceptions);
}
