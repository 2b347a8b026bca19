/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policies: a BPF program chooses the value of each execution of a site. It
 * reads what it likes and writes nothing; whether its choice is accepted, and
 * what becomes of it, is decided here.
 */
#ifndef _XK_POLICY_H
#define _XK_POLICY_H

#include <linux/bpf.h>
#include <linux/context_tracking_state.h>
#include <linux/filter.h>
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "model/tune.h"

/*
 * Of one site, on one CPU; the execution that is under way there, too. Used by one
 * execution at a time: see xk_policy_handle().
 */
struct xk_policy_cpu {
	const struct pt_regs *regs;	/* context of the program that runs, for xk_set() */
	const struct xk_site_values *beneath;	/* in force where nothing is set */
	bool set;			/* the program has: `value` */
	bool once;			/* decides once in an activation of a watched scope */
	bool plain;			/* not so, and the update is of the shortest kind */
	u8 bucket;			/* of `value` in the histogram */
	s64 value;			/* for which the rest was computed; always a proved one */
	const struct bpf_prog *program;
	bpf_func_t func;		/* of the program */
	const struct bpf_insn *insns;
	const struct xk_live_site *site;
	struct xk_counters __percpu *counters;	/* of the site */
	struct xk_site_values values;
	u64 histogram[XK_POLICY_BUCKETS];
	struct {
		u64 kept;	/* decided, and nothing was set */
		u64 refused;
		u64 skipped;
		u64 reused;
		u64 unseen;
	} count;
};

struct xk_policy_site {
	struct xk_policy_cpu __percpu *cpus;
	bool once;
};

/* What a request refers to, copied: user memory may take for ever to be read. */
struct xk_policy_lists {
	u32 *scopes;
	u32 *sites;
	s32 *links;
};

/* A scope whose activations are told apart. */
struct xk_watch {
	struct kretprobe probe;
	struct xk_live_policy *policy;
	unsigned int scope;
	bool armed;
};

struct xk_live_policy {
	refcount_t users;		/* the tune, and versions of its values */
	struct work_struct free;
	struct bpf_prog *program;
	unsigned int nr_links;
	struct bpf_link **links;
	unsigned int nr_watches;
	struct xk_watch *watches;
	unsigned int nr_sites;
	struct xk_policy_site sites[] __counted_by(nr_sites);
};

/* What is remembered of an execution of a program. */
struct xk_decision {
	bool made;
	bool making;			/* the program is at work */
	bool set;
	s64 value;
};

/* The execution that is under way on this CPU; or one of nobody. */
DECLARE_PER_CPU(struct xk_policy_cpu *, xk_policy_current);
extern struct xk_policy_cpu xk_policy_nobody;

/* policy.c */
int xk_policy_init(void);
int xk_policy_load(struct file *caller, struct xk_policy *request, struct xk_error *error);
struct xk_live_policy *xk_policy_get(struct xk_live_policy *policy);
void xk_policy_put(struct xk_live_policy *policy);
void xk_policy_forget(struct xk_live_policy *policy, const struct xk_live_site *site);
int xk_policy_info(struct xk_policy_info *info);
void xk_policy_module_coming(struct xk_tune *tune);
void xk_policy_module_going(struct xk_tune *tune, const struct module *module);

/*
 * Text where RCU does not watch has no stubs; but a program that ran there could find
 * its maps freed, and nobody would notice.
 */
static __always_inline bool xk_policy_may_run(void)
{
	return this_cpu_read(context_tracking.state.counter) & CT_RCU_WATCHING;
}

/* bpf_prog_active of the kernel; NULL until there is a policy. */
extern int __percpu *xk_bpf_active;

/*
 * As trace_call_bpf() does for programs of perf: none runs in the middle of another one,
 * nor of a change of a map, which may be under a lock that it would wait for. Preemption
 * is disabled.
 */
static __always_inline bool xk_bpf_enter(void)
{
	int __percpu *active = xk_bpf_active;

	if (unlikely(__this_cpu_read(*active)))
		return false;
	this_cpu_inc(*active);
	return true;
}

static __always_inline void xk_bpf_leave(void)
{
	this_cpu_dec(*xk_bpf_active);
}

/* decide.c */
void xk_policy_fill(struct xk_policy_cpu *cpu, s64 value);
int xk_policy_handle(const struct xk_live_site *site, const struct xk_values *values,
		     struct pt_regs *regs);
/* Only the stubs of detours call it. */
u64 xk_detour_decide(struct pt_regs *regs, const struct xk_stub *stub);

/* activation.c */
int xk_activation_create(struct xk_live_policy *policy, const struct xk_tune *tune,
			 const struct xk_policy *request, const struct xk_policy_lists *lists,
		   struct xk_error *error);
void xk_activation_destroy(struct xk_live_policy *policy);
int xk_activation_arm(struct xk_live_policy *policy, const struct xk_tune *tune,
		      struct xk_error *error);
void xk_activation_await_module(struct xk_live_policy *policy, const struct xk_tune *tune,
				const struct module *module);
u8 xk_level(const struct pt_regs *regs);
struct xk_decision *xk_activation_find(const struct xk_live_policy *policy,
				       const struct pt_regs *regs);

/* program.c */
int xk_program_init(void);
struct bpf_prog *xk_program_get(int fd, struct xk_error *error);

/* What policies call: kfuncs, not for anybody else. */
long xk_set(bpf_user_pt_regs_t *ctx, u64 value);
u64 xk_default(bpf_user_pt_regs_t *ctx);
u64 xk_value(bpf_user_pt_regs_t *ctx);
bool xk_transition_done(bpf_user_pt_regs_t *ctx);
bool xk_in_task(bpf_user_pt_regs_t *ctx);
u32 xk_site(bpf_user_pt_regs_t *ctx);

#endif /* _XK_POLICY_H */
