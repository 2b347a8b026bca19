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

/* Measuring the run time of programs (bpf_stats_enabled) makes this path slower. */
static noinline void notrace run_measured(const struct xk_hook *hook, struct pt_regs *regs)
{
	bpf_prog_run(hook->attachment->program, regs);
}

static __always_inline void run_program(const struct xk_hook *hook, struct pt_regs *regs)
{
	/* Preemption is disabled. Only kernels that check RCU need to be told. */
	if (IS_ENABLED(CONFIG_PROVE_RCU))
		rcu_read_lock();
	if (static_branch_unlikely(&bpf_stats_enabled_key))
		run_measured(hook, regs);
	else
		hook->func(regs, hook->insns);
	if (IS_ENABLED(CONFIG_PROVE_RCU))
		rcu_read_unlock();
}

/* For bpf_get_attach_cookie(), and for bpf_get_func_ip(), which must not take it for a uprobe. */
static noinline void notrace run_in_context(const struct xk_hook *hook, struct pt_regs *regs)
{
	struct bpf_trace_run_ctx context = { .bpf_cookie = hook->cookie };
	struct bpf_run_ctx *before = bpf_set_run_ctx(&context.run_ctx);

	run_program(hook, regs);
	bpf_reset_run_ctx(before);
}

static __always_inline void run_hook(const struct xk_hook *hook, struct pt_regs *regs)
{
	this_cpu_inc(*hook->hits);
	if (!hook->func)
		return;
	if (unlikely(!xk_policy_may_run() || !xk_bpf_enter())) {
		this_cpu_inc(*hook->attachment->skipped);
		return;
	}
	if (hook->attachment->needs_context)
		run_in_context(hook, regs);
	else
		run_program(hook, regs);
	xk_bpf_leave();
}

/* Preemption is disabled, so no hook and no program is freed meanwhile. */
static __always_inline void run_hooks(const struct xk_point *point, struct pt_regs *regs)
{
	const struct xk_hook *hook;

	/* Pairs with the store in xk_hook_add(). */
	for (hook = smp_load_acquire(&point->first); hook; hook = smp_load_acquire(&hook->next))
		run_hook(hook, regs);
}

__noendbr void notrace xk_probe_run(struct pt_regs *regs, const struct xk_point *point)
{
	preempt_disable_notrace();
	run_hooks(point, regs);
	/* Another thread may run from here on: see UNWIND_HINT_REGS in enter.S. */
	preempt_enable_notrace();
}

/*
 * kprobes disable preemption. Behind a breakpoint, they pass the address after it as ip; programs
 * find the address of the instruction, as in a slot.
 */
int notrace xk_probe_hit(struct kprobe *kprobe, struct pt_regs *regs)
{
	const struct xk_point *point = container_of(kprobe, struct xk_point, kprobe);
	unsigned long ip = regs->ip;

	regs->ip = point->address;
	run_hooks(point, regs);
	regs->ip = ip;
	return 0;
}

NOKPROBE_SYMBOL(xk_probe_run);
NOKPROBE_SYMBOL(xk_probe_hit);
NOKPROBE_SYMBOL(run_in_context);
NOKPROBE_SYMBOL(run_measured);
