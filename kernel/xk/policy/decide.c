// SPDX-License-Identifier: GPL-2.0-only
/*
 * The handler of a site whose tune has a policy. It runs the program, and then the update with the
 * value that the program set, or with the value beneath. The caller has disabled preemption.
 */
#include <linux/filter.h>
#include <linux/kprobes.h>
#include <linux/log2.h>
#include <linux/preempt.h>

#include "model/run.h"
#include "policy/policy.h"
#include "text/stub.h"

/*
 * Computes what depends on the value at this site. The number of operations of the site limits the
 * time.
 */
static void notrace fill_values(const struct xk_live_site *site, s64 value,
				struct xk_site_values *values)
{
	unsigned int i;

	for (i = 0; i < site->nr_ivs; i++)
		values->ivs[i] = xk_iv_apply(&site->ivs[i], value);
	xk_native_fill(&site->native, values->ivs, values->constants);
}

static u8 notrace bucket_of(s64 value)
{
	return value < 1 ? 0 : min(ilog2(value) + 1, XK_POLICY_BUCKETS - 1);
}

void notrace xk_policy_fill(struct xk_policy_cpu *cpu, s64 value)
{
	fill_values(cpu->site, value, &cpu->values);
	cpu->value = value;
	cpu->bucket = bucket_of(value);
}

/* Measuring the run time of programs (bpf_stats_enabled) makes this path slower. */
static noinline void notrace run_measured(struct xk_policy_cpu *cpu, struct pt_regs *regs)
{
	bpf_prog_run(cpu->program, regs);
}

/*
 * Preemption is disabled, which protects what a program finds in maps as rcu_read_lock() does. Only
 * kernels that check RCU need to be told. program.c refuses helpers that use current->bpf_ctx.
 */
static __always_inline void run_program(struct xk_policy_cpu *cpu, struct pt_regs *regs)
{
	if (IS_ENABLED(CONFIG_PROVE_RCU))
		rcu_read_lock();
	if (static_branch_unlikely(&bpf_stats_enabled_key))
		run_measured(cpu, regs);
	else
		cpu->func(regs, cpu->insns);
	if (IS_ENABLED(CONFIG_PROVE_RCU))
		rcu_read_unlock();
}

/*
 * After xk_bpf_enter(): a handler that interrupts this one finds a running program, and does not
 * use `cpu` and its values.
 */
static __always_inline void begin(struct xk_policy_cpu *cpu,
				  const struct xk_site_values *beneath, struct pt_regs *regs)
{
	__this_cpu_write(xk_policy_current, cpu);
	barrier();
	cpu->regs = regs;
	cpu->beneath = beneath;
	cpu->set = false;
	barrier();
}

static __always_inline void end(void)
{
	barrier();
	__this_cpu_write(xk_policy_current, &xk_policy_nobody);
	xk_bpf_leave();
}

/*
 * Uses the decision of this activation, and makes it first if there is none. Returns false if no
 * probe saw the activation start.
 */
static bool notrace decide_once(struct xk_policy_cpu *cpu, const struct xk_live_policy *policy,
				struct pt_regs *regs)
{
	struct xk_decision *kept = xk_activation_find(policy, regs);

	if (!kept) {
		cpu->count.unseen++;
		return false;
	}
	if (!kept->made) {
		kept->making = true;
		run_program(cpu, regs);
		kept->making = false;
		kept->set = cpu->set;
		kept->value = cpu->value;
		kept->made = true;
		return true;
	}
	cpu->count.reused++;
	cpu->set = kept->set;
	if (kept->set && cpu->value != kept->value)
		xk_policy_fill(cpu, kept->value);
	return true;
}

/*
 * Another program is running on this CPU, and its execution owns the per-CPU state. An activation
 * that has decided keeps its decision. One that has not decided keeps the value beneath to its end;
 * unless its own program is running, whose calls do not belong to it.
 */
static noinline int notrace handle_beside(const struct xk_live_site *site,
					  const struct xk_values *values, struct pt_regs *regs)
{
	const struct xk_site_values *beneath = xk_values_at(values, site);
	struct xk_policy_cpu __percpu *cpu = beneath->decided;
	struct xk_decision *kept = NULL;
	struct xk_site_values own;

	if (this_cpu_read(cpu->once))
		kept = xk_activation_find(values->policy, regs);
	if (kept && kept->made && kept->set) {
		fill_values(site, kept->value, &own);
		this_cpu_inc(cpu->count.reused);
		this_cpu_inc(cpu->histogram[bucket_of(kept->value)]);
		return xk_run(site, &own, regs);
	}
	if (kept && !kept->making) {
		kept->set = false;
		kept->made = true;
	}
	this_cpu_inc(cpu->count.skipped);
	return xk_run(site, beneath, regs);
}

/* The path for cases in which instructions need not be saved. */
static noinline int notrace handle_any(const struct xk_live_site *site,
				       const struct xk_values *values, struct pt_regs *regs)
{
	const struct xk_site_values *chosen = xk_values_at(values, site);
	struct xk_policy_cpu *cpu = this_cpu_ptr(chosen->decided);
	bool decided = true;
	int ret;

	if (!xk_bpf_enter())
		return handle_beside(site, values, regs);
	begin(cpu, chosen, regs);
	if (cpu->once)
		decided = decide_once(cpu, values->policy, regs);
	else
		run_program(cpu, regs);
	if (cpu->set) {
		cpu->histogram[cpu->bucket]++;
		chosen = &cpu->values;
	} else if (decided) {
		cpu->count.kept++;
	}
	ret = xk_run(site, chosen, regs);
	end();
	return ret;
}

/*
 * If an eBPF program is running on this CPU (a policy, or one of perf), or a map is being changed,
 * the value beneath is used, whether the execution is in an interrupt or in a function that the
 * program calls. An activation that has already decided is an exception. This keeps programs from
 * recursing and from waiting for each other's locks, and one execution at a time uses the per-CPU
 * state. An interrupt between the check and the increment in xk_bpf_enter() has ended when the
 * increment is made.
 */
int notrace xk_policy_handle(const struct xk_live_site *site, const struct xk_values *values,
			     struct pt_regs *regs)
{
	const struct xk_site_values *beneath = xk_values_at(values, site);
	struct xk_policy_cpu *cpu = this_cpu_ptr(beneath->decided);
	const u64 *constants = beneath->constants;

	if (unlikely(!cpu->plain || !xk_bpf_enter()))
		return handle_any(site, values, regs);
	begin(cpu, beneath, regs);
	run_program(cpu, regs);
	if (likely(cpu->set)) {
		cpu->histogram[cpu->bucket]++;
		constants = cpu->values.constants;
	} else {
		cpu->count.kept++;
	}
	xk_set_value(site, constants[0], regs);
	end();
	xk_count_hit(site);
	return 0;
}

/* Returns the value beneath: the policy must not run now. */
static noinline u64 notrace beneath_of(const struct xk_site_values *beneath)
{
	const struct xk_policy_cpu *cpu = this_cpu_ptr(beneath->decided);

	this_cpu_inc(beneath->decided->count.skipped);
	this_cpu_inc(cpu->counters->hits);
	return beneath->constants[0];
}

static __always_inline u64 decide(const struct xk_site_values *beneath, struct pt_regs *regs)
{
	struct xk_policy_cpu *cpu = this_cpu_ptr(beneath->decided);
	u64 value;

	if (unlikely(!xk_policy_may_run() || !xk_bpf_enter()))
		return beneath_of(beneath);
	begin(cpu, beneath, regs);
	run_program(cpu, regs);
	if (likely(cpu->set)) {
		cpu->histogram[cpu->bucket]++;
		value = cpu->values.constants[0];
	} else {
		cpu->count.kept++;
		value = cpu->beneath->constants[0];
	}
	end();
	this_cpu_inc(cpu->counters->hits);
	return value;
}

/*
 * Called from a stub whose update only sets a register, while nothing but one policy is in force.
 * See xk_stub_call_policy in entry.S. A thread that is switched out between the selector and this
 * function has an unreadable stack, so every change of paths waits for it. The test for a policy
 * costs two instructions. Without it, a thread that came here without a policy would crash the
 * machine.
 */
__noendbr u64 notrace xk_detour_decide(struct pt_regs *regs, const struct xk_stub *stub)
{
	const struct xk_site_values *beneath;
	u64 value;

	preempt_disable_notrace();
	/* Pairs with the store in xk_stub_set_values(). */
	beneath = smp_load_acquire(&stub->decided);
	value = likely(beneath) ? decide(beneath, regs) : READ_ONCE(stub->value);
	/* Another thread may run from here on: see UNWIND_HINT_REGS in entry.S. */
	preempt_enable_notrace();
	return value;
}

NOKPROBE_SYMBOL(xk_policy_handle);
NOKPROBE_SYMBOL(xk_detour_decide);
NOKPROBE_SYMBOL(handle_any);
NOKPROBE_SYMBOL(handle_beside);
NOKPROBE_SYMBOL(fill_values);
NOKPROBE_SYMBOL(bucket_of);
NOKPROBE_SYMBOL(beneath_of);
NOKPROBE_SYMBOL(decide_once);
NOKPROBE_SYMBOL(run_measured);
