// SPDX-License-Identifier: GPL-2.0-only
/*
 * A site of a tune with a policy is reached: the program runs, and the update is
 * performed with the value that it has set, or with the one that is in force
 * beneath it. The caller has disabled preemption.
 */
#include <linux/filter.h>
#include <linux/kprobes.h>
#include <linux/log2.h>
#include <linux/preempt.h>

#include "model/run.h"
#include "policy/policy.h"
#include "text/stub.h"

/* What depends on the value at this site. Bounded by the operations of the site. */
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

/* Who wants to know how long programs take pays for it. */
static noinline void notrace run_measured(struct xk_policy_cpu *cpu, struct pt_regs *regs)
{
	bpf_prog_run(cpu->program, regs);
}

/*
 * Preemption is disabled, which keeps what a program finds in maps as rcu_read_lock()
 * does; only kernels that check it want to be told. What helpers would look for in
 * current->bpf_ctx is refused by program.c.
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
 * After xk_bpf_enter(): whoever interrupts finds a program at work, and leaves `cpu` and
 * its values alone.
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
 * The decision that is remembered for this activation; it is made if it was not.
 * False: its beginning was not seen.
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
 * Another program is at work on this CPU, and what is kept for the CPU is in its hands. An
 * activation that has decided keeps to that. One that has not keeps to the value beneath
 * from here on, unless it is its own program that is at work, whose calls are not a part
 * of it.
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

/* Whatever is not the path on which an instruction counts. */
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
 * Whoever finds an eBPF program at work on this CPU, a policy or one of perf, or a map
 * that is being changed, uses the value beneath, be it an interrupt above it or what a
 * program calls, unless it is in an activation that has decided already. So programs are
 * kept from themselves and from each other's locks, and one execution at a time uses what
 * is kept for this CPU. An interrupt between the look and the note in xk_bpf_enter() is
 * over by then.
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

/* What is in force beneath the policy, which must not run now. */
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
 * From a stub whose update is of the shortest kind, while nothing but one policy is in
 * force. See xk_stub_call_policy in entry.S. A thread that is switched out between the selector
 * and here keeps every change of paths waiting, as its stack cannot be read; the test for a
 * policy costs two instructions, and its absence would cost the machine.
 */
u64 notrace xk_detour_decide(struct pt_regs *regs, const struct xk_stub *stub)
{
	const struct xk_site_values *beneath;
	u64 value;

	preempt_disable_notrace();
	/* Pairs with the store in xk_stub_set_values(). */
	beneath = smp_load_acquire(&stub->decided);
	value = likely(beneath) ? decide(beneath, regs) : READ_ONCE(stub->value);
	/* Another thread may run here: see UNWIND_HINT_REGS in entry.S. */
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
