// SPDX-License-Identifier: GPL-2.0-only
/*
 * A site of a tune with a policy is reached: the program runs, and the update is
 * performed with the value that it has set, or with the one that is in force
 * beneath it. The caller has disabled preemption.
 */
#include <linux/filter.h>
#include <linux/kprobes.h>
#include <linux/log2.h>

#include "handler.h"
#include "policy.h"

/* What depends on the value at this site. Bounded by the operations of the site. */
static void notrace fill(struct xk_policy_cpu *cpu, const struct xk_live_site *site, s64 value)
{
	struct xk_site_values *values = &cpu->values;
	u64 *frame = this_cpu_ptr(values->frame);
	unsigned int i;

	for (i = 0; i < site->nr_ivs; i++)
		values->ivs[i] = xk_iv_apply(&site->ivs[i], value);
	xk_plan_fill(&site->plan, values->ivs, frame);
	xk_shape_fill(&site->plan, frame, values->constants);
	cpu->value = value;
	cpu->filled = true;
}

static __always_inline void count_value(struct xk_policy_cpu *cpu, s64 value)
{
	unsigned int bucket = value < 1 ? 0 : min(ilog2(value) + 1, XK_POLICY_BUCKETS - 1);

	cpu->count.chosen++;
	cpu->histogram[bucket]++;
}

static __always_inline void run_program(struct xk_run *run, const struct bpf_prog *program)
{
	struct bpf_trace_run_ctx context = {};
	struct xk_run *interrupted = __this_cpu_read(xk_run_current);
	struct bpf_run_ctx *before;

	run->cpu->count.runs++;
	__this_cpu_write(xk_run_current, run);
	/* Helpers look there for what perf would have put there. */
	before = bpf_set_run_ctx(&context.run_ctx);
	rcu_read_lock();
	bpf_prog_run(program, run->regs);
	rcu_read_unlock();
	bpf_reset_run_ctx(before);
	__this_cpu_write(xk_run_current, interrupted);
}

/* Returns the decision for this execution: just made, remembered, or none. */
static __always_inline const struct xk_decision *
decide(struct xk_run *run, const struct xk_live_policy *policy)
{
	struct xk_decision *kept;

	if (!policy->sites[run->site->index].once) {
		run_program(run, policy->program);
		return &run->decision;
	}
	kept = xk_once_find(policy, run->regs);
	if (!kept) {
		run->cpu->count.unseen++;
		return &run->decision;
	}
	if (kept->made) {
		run->cpu->count.reused++;
		return kept;
	}
	run_program(run, policy->program);
	*kept = run->decision;
	kept->made = true;
	return kept;
}

/*
 * Whoever finds the program running on this CPU, be it an interrupt above it,
 * or the program itself by what it calls, uses the value beneath: that is how
 * the kernel's own trampolines keep programs from themselves, and it makes one
 * execution at a time the user of what is kept for this CPU.
 */
int notrace xk_policy_handle(const struct xk_live_site *site, const struct xk_values *values,
			     struct pt_regs *regs)
{
	struct xk_live_policy *policy = values->policy;
	struct xk_policy_cpu *cpu = this_cpu_ptr(policy->sites[site->index].cpus);
	struct xk_run run = { .regs = regs, .site = site, .values = values, .cpu = cpu };
	int __percpu *active = policy->program->active;
	const struct xk_site_values *chosen = xk_values_at(values, site);
	const struct xk_decision *decision;
	int ret;

	if (unlikely(this_cpu_inc_return(*active) != 1)) {
		this_cpu_inc(policy->sites[site->index].cpus->count.skipped);
		ret = xk_run(site, chosen, regs);
	} else {
		decision = decide(&run, policy);
		if (decision->set) {
			if (unlikely(cpu->value != decision->value || !cpu->filled))
				fill(cpu, site, decision->value);
			count_value(cpu, decision->value);
			chosen = &cpu->values;
		}
		ret = xk_run(site, chosen, regs);
	}
	this_cpu_dec(*active);
	return ret;
}

NOKPROBE_SYMBOL(xk_policy_handle);
