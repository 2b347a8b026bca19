// SPDX-License-Identifier: GPL-2.0-only
/*
 * The eBPF side of policies: which programs are accepted, and the kfuncs that they may call. A
 * program of type kprobe cannot write kernel memory or its context. The exceptions that the
 * verifier leaves to the code that attaches the program are refused here.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/filter.h>
#include <linux/kallsyms.h>
#include <linux/module.h>

#include "text/internal.h"
#include "policy/policy.h"
#include "text/symbol.h"

/* No program has its context. */
struct xk_policy_cpu xk_policy_nobody;
DEFINE_PER_CPU(struct xk_policy_cpu *, xk_policy_current);
int __percpu *xk_bpf_active;

/* Returns the execution for which the program with this context runs, or NULL. */
static __always_inline struct xk_policy_cpu *run_of(const bpf_user_pt_regs_t *ctx)
{
	struct xk_policy_cpu *cpu = this_cpu_read(xk_policy_current);

	/* Another program may run on top of it, in an interrupt. */
	return likely(cpu->regs == ctx) ? cpu : NULL;
}

static noinline notrace long set_another(struct xk_policy_cpu *cpu, s64 value)
{
	if (!xk_tune_accepts(cpu->site->tune, value)) {
		cpu->count.refused++;
		return -ERANGE;
	}
	xk_policy_fill(cpu, value);
	cpu->set = true;
	return 0;
}

__bpf_kfunc_start_defs();

/*
 * This execution uses `value`. Returns 0; -ERANGE if the tune does not accept it; -EPERM if the
 * caller is not a policy that xk.ko runs.
 */
__bpf_kfunc notrace long xk_set(bpf_user_pt_regs_t *ctx, u64 value)
{
	struct xk_policy_cpu *cpu = run_of(ctx);

	if (unlikely(!cpu))
		return -EPERM;
	/* A value equal to the last accepted one needs no check. */
	if (unlikely(cpu->value != (s64)value))
		return set_another(cpu, value);
	cpu->set = true;
	return 0;
}

/* Returns the value in the source. */
__bpf_kfunc u64 xk_default(bpf_user_pt_regs_t *ctx)
{
	struct xk_policy_cpu *cpu = run_of(ctx);

	return cpu ? cpu->site->tune->default_value : 0;
}

/* Returns the current value of this execution: the value set, or the value beneath. */
__bpf_kfunc u64 xk_value(bpf_user_pt_regs_t *ctx)
{
	struct xk_policy_cpu *cpu = run_of(ctx);

	if (!cpu)
		return 0;
	return cpu->set ? cpu->value : cpu->beneath->of->value;
}

/* Returns whether every thread has switched to the version in force. */
__bpf_kfunc bool xk_transition_done(bpf_user_pt_regs_t *ctx)
{
	struct xk_policy_cpu *cpu = run_of(ctx);

	return cpu && !READ_ONCE(cpu->beneath->of->settling);
}

/* Returns whether a thread executes the site, and not an interrupt on top of a thread. */
__bpf_kfunc bool xk_in_task(bpf_user_pt_regs_t *ctx)
{
	struct xk_policy_cpu *cpu = run_of(ctx);

	return cpu && !xk_level(cpu->regs);
}

/* Returns the number of the site. */
__bpf_kfunc u32 xk_site(bpf_user_pt_regs_t *ctx)
{
	struct xk_policy_cpu *cpu = run_of(ctx);

	return cpu ? cpu->site->index : 0;
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(kfuncs)
BTF_ID_FLAGS(func, xk_set)
BTF_ID_FLAGS(func, xk_default)
BTF_ID_FLAGS(func, xk_value)
BTF_ID_FLAGS(func, xk_transition_done)
BTF_ID_FLAGS(func, xk_in_task)
BTF_ID_FLAGS(func, xk_site)
BTF_KFUNCS_END(kfuncs)

static const struct btf_kfunc_id_set kfunc_set = {
	.owner = THIS_MODULE,
	.set = &kfuncs,
};

/* The registration ends with the BTF of the module. */
int __init xk_program_init(void)
{
	int cpu;

	/* Initial values of per-CPU data of modules are not relocated. */
	for_each_possible_cpu(cpu)
		per_cpu(xk_policy_current, cpu) = &xk_policy_nobody;
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_KPROBE, &kfunc_set);
}

static bool asks_function(const char *name)
{
	return strstarts(name, "bpf_get_func_ip");
}

/* These helpers read current->bpf_ctx, which only perf sets. */
static bool needs_perf(const char *name)
{
	return strstarts(name, "bpf_get_attach_cookie") || asks_function(name);
}

/* Whether the program calls a helper with such a name, or may do so after a tail call. */
static bool may_call(const struct bpf_prog *program, bool (*is_one)(const char *name))
{
	char *text = kzalloc(KSYM_SYMBOL_LEN, GFP_KERNEL);
	struct xk_symbol symbol;
	bool may = !text;
	unsigned int i;

	for (i = 0; i < program->len && !may; i++) {
		const struct bpf_insn *insn = &program->insnsi[i];
		unsigned long target = (unsigned long)__bpf_call_base + insn->imm;

		if (insn->code == (BPF_JMP | BPF_TAIL_CALL))
			may = true;
		else if (insn->code == (BPF_JMP | BPF_CALL) && insn->src_reg != BPF_PSEUDO_CALL)
			may = !xk_symbol_at(target, text, &symbol) || is_one(symbol.name);
	}
	kfree(text);
	return may;
}

bool xk_program_needs_context(const struct bpf_prog *program)
{
	return may_call(program, needs_perf);
}

bool xk_program_asks_function(const struct bpf_prog *program)
{
	return may_call(program, asks_function);
}

/* A kfunc of another module may have any side effect. */
static int check_call(const struct bpf_insn *insn, struct xk_error *error)
{
	bool kfunc = insn->src_reg == BPF_PSEUDO_KFUNC_CALL;
	unsigned long target = (unsigned long)__bpf_call_base + insn->imm;
	char *text = kzalloc(KSYM_SYMBOL_LEN, GFP_KERNEL);
	struct xk_symbol symbol;
	int ret = 0;

	if (!text)
		return -ENOMEM;
	if (!xk_symbol_at(target, text, &symbol))
		ret = xk_refuse(error, -EINVAL, "it calls an unknown function");
	else if (needs_perf(symbol.name))
		ret = xk_refuse(error, -EINVAL, "it calls %s, which is for programs of perf",
				symbol.name);
	else if (kfunc && symbol.module[0] && strcmp(symbol.module, KBUILD_MODNAME))
		ret = xk_refuse(error, -EINVAL,
				"it calls %s of module %s, which could write anything",
				symbol.name, symbol.module);
	kfree(text);
	return ret;
}

/*
 * After verification, `insnsi` contains subprograms, and the resolved calls of helpers and kfuncs.
 */
static int check_calls(const struct bpf_prog *program, struct xk_error *error)
{
	unsigned int i;
	int ret;

	for (i = 0; i < program->len; i++) {
		const struct bpf_insn *insn = &program->insnsi[i];

		if (insn->code == (BPF_JMP | BPF_TAIL_CALL))
			return xk_refuse(error, -EINVAL,
					 "it makes a tail call, to a program that may change later");
		/* Calls within the program lead nowhere else. */
		if (insn->code != (BPF_JMP | BPF_CALL) || insn->src_reg == BPF_PSEUDO_CALL)
			continue;
		ret = check_call(insn, error);
		if (ret)
			return ret;
	}
	return 0;
}

/* Under xk_lock, before any policy is in force. */
static bool find_active(void)
{
	static_assert(__same_type(bpf_prog_active, int));
	if (!xk_bpf_active)
		xk_bpf_active = (int __percpu *)xk_internal_find("bpf_prog_active");
	return xk_bpf_active;
}

/* What no program may do that xk.ko runs, neither a policy nor the program of a probe. */
static int check_any(const struct bpf_prog *program, struct xk_error *error)
{
	if (!find_active())
		return xk_refuse(error, -EOPNOTSUPP,
				 "bpf_prog_active was not found: without it, eBPF programs could nest");
	if (program->kprobe_override)
		return xk_refuse(error, -EINVAL,
				 "it calls bpf_override_return(), which changes registers");
	if (program->sleepable)
		return xk_refuse(error, -EINVAL,
				 "it is sleepable, but sites run with preemption disabled");
	if (program->expected_attach_type)
		return xk_refuse(error, -EINVAL,
				 "it is for kprobe.multi or uprobe.multi (attach type %d); use SEC(\"kprobe\")",
				 program->expected_attach_type);
	return 0;
}

static struct bpf_prog *get_program(int fd, bool policy, struct xk_error *error)
{
	struct bpf_prog *program = bpf_prog_get_type_dev(fd, BPF_PROG_TYPE_KPROBE, false);
	int ret;

	if (IS_ERR(program)) {
		xk_refuse(error, PTR_ERR(program),
			  "descriptor %d is no BPF program of type kprobe", fd);
		return program;
	}
	ret = check_any(program, error);
	if (!ret && policy)
		ret = check_calls(program, error);
	if (!ret)
		return program;
	bpf_prog_put(program);
	return ERR_PTR(ret);
}

struct bpf_prog *xk_program_get(int fd, struct xk_error *error)
{
	return get_program(fd, true, error);
}

struct bpf_prog *xk_probe_program_get(int fd, struct xk_error *error)
{
	return get_program(fd, false, error);
}
