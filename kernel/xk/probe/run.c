// SPDX-License-Identifier: GPL-2.0-only
/*
 * The handlers of probes. They run the program of each hook, and count.
 *
 * Programs are kept apart as trace_call_bpf() keeps those of kprobes apart: none runs while another
 * one runs on this CPU, or while a map is changed there. Such an execution is counted (`skipped`).
 */
#include <linux/bpf.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "policy/policy.h"
#include "probe/run.h"

/* Hits of points whose hooks have counters of their own. Never read. */
DEFINE_PER_CPU(u64, xk_probe_uncounted);

/* For bpf_get_attach_cookie(), and for bpf_get_func_ip(), which must not take it for a uprobe. */
static void notrace run_in_context(const struct xk_hook *hook, struct pt_regs *regs)
{
	struct bpf_trace_run_ctx context = { .bpf_cookie = hook->cookie };
	struct bpf_run_ctx *before = bpf_set_run_ctx(&context.run_ctx);

	bpf_prog_run(hook->program->program, regs);
	bpf_reset_run_ctx(before);
}

static void notrace run_hook(const struct xk_hook *hook, struct pt_regs *regs)
{
	this_cpu_inc(*hook->hits);
	if (!hook->program->program)
		return;
	if (IS_ENABLED(CONFIG_PROVE_RCU))
		rcu_read_lock();
	if (hook->program->needs_context)
		run_in_context(hook, regs);
	else
		bpf_prog_run(hook->program->program, regs);
	if (IS_ENABLED(CONFIG_PROVE_RCU))
		rcu_read_unlock();
}

/* The act of an attachment that only counts. */
unsigned int notrace xk_probe_count(const void *regs, const struct bpf_insn *unused)
{
	return 0;
}

/* The function of xk_point.all. */
unsigned int notrace xk_probe_run_all(const void *regs, const struct bpf_insn *act)
{
	const struct xk_point *point = container_of((const void *)act, struct xk_point, all);
	const struct xk_hook *hook;

	/* Pairs with the store in xk_hook_add(). */
	for (hook = smp_load_acquire(&point->first); hook; hook = smp_load_acquire(&hook->next))
		run_hook(hook, (struct pt_regs *)regs);
	return 0;
}

/* No program may run now. */
static noinline void notrace skip_all(const struct xk_point *point)
{
	const struct xk_hook *hook;

	/* Pairs with the store in xk_hook_add(). */
	for (hook = smp_load_acquire(&point->first); hook; hook = smp_load_acquire(&hook->next)) {
		this_cpu_inc(*hook->hits);
		if (hook->program->program)
			this_cpu_inc(*hook->attachment->skipped);
	}
}

/*
 * Reads point->act. On x86 each load acquires, so this pairs with the store in choose_act(). The
 * result replaces the point in its register, which is that of the second argument. A compiler would
 * take another one first, at one instruction per execution.
 */
static __always_inline const struct xk_act *act_of(const struct xk_point *point)
{
	const void *at = point;

	asm volatile("movq %c[act](%[at]), %[at]"
		     : [at] "+r" (at)
		     : [act] "i" (offsetof(struct xk_point, act))
		     : "memory");
	return at;
}

/* Compiled programs ignore the second argument; it is for xk_probe_run_all(). */
static __always_inline void do_act(const struct xk_act *act, struct pt_regs *regs)
{
	this_cpu_inc(*act->hits);
	act->func(regs, (const void *)act);
}

/* Measuring the run time of programs (bpf_stats_enabled) makes this path slower. */
static __always_inline void act(const struct xk_point *point, struct pt_regs *regs)
{
	const struct xk_act *act;

	if (unlikely(!xk_policy_may_run() || !xk_bpf_enter())) {
		skip_all(point);
		return;
	}
	if (static_branch_unlikely(&bpf_stats_enabled_key))
		act = &point->all;
	else
		act = act_of(point);
	do_act(act, regs);
	xk_bpf_leave();
}

/* Preemption is disabled meanwhile, so no hook and no program is freed. */
__noendbr void notrace xk_probe_run(struct pt_regs *regs, const struct xk_point *point)
{
	preempt_disable_notrace();
	act(point, regs);
	/* Another thread may run from here on: see UNWIND_HINT_REGS in enter.S. */
	preempt_enable_notrace();
}

/*
 * Behind a breakpoint, and behind a call of the function tracer, ip is the address after it.
 * Programs find the address of the instruction, as in a slot.
 */
void notrace xk_probe_run_at(const struct xk_point *point, struct pt_regs *regs)
{
	unsigned long ip = regs->ip;

	regs->ip = point->address;
	act(point, regs);
	regs->ip = ip;
}

/* kprobes disable preemption. */
int notrace xk_probe_hit(struct kprobe *kprobe, struct pt_regs *regs)
{
	xk_probe_run_at(container_of(kprobe, struct xk_point, kprobe), regs);
	return 0;
}

NOKPROBE_SYMBOL(xk_probe_run);
NOKPROBE_SYMBOL(xk_probe_count);
NOKPROBE_SYMBOL(xk_probe_run_all);
NOKPROBE_SYMBOL(xk_probe_run_at);
NOKPROBE_SYMBOL(xk_probe_hit);
NOKPROBE_SYMBOL(run_hook);
NOKPROBE_SYMBOL(run_in_context);
NOKPROBE_SYMBOL(skip_all);
