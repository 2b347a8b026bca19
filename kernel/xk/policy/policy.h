/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policies: an eBPF program chooses the value of each execution of a site. It may read anything and
 * writes nothing. xk.ko decides whether the value is accepted, and applies it.
 */
#ifndef _XK_POLICY_H
#define _XK_POLICY_H

#include <linux/bpf.h>
#include <linux/context_tracking_state.h>
#include <linux/filter.h>
#include <linux/kprobes.h>
#include <linux/log2.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>
#include <asm/ibt.h>

#include "model/tune.h"

/*
 * The state of a policy for one site on one CPU, and of the execution under way there. One
 * execution at a time uses it: see xk_policy_handle().
 */
struct xk_policy_cpu {
	const struct pt_regs *regs;	/* context of the running program, for xk_set() */
	const struct xk_site_values *beneath;	/* the values beneath: used if none is set */
	bool set;			/* the program has set `value` */
	bool once;			/* decides once per activation of a watched scope */
	bool plain;			/* not `once`, and the update only sets a register */
	u8 bucket;			/* of `value` in the histogram */
	s64 value;			/* `bucket` and `values` are for it; always accepted */
	const struct bpf_prog *program;
	bpf_func_t func;		/* of the program */
	const struct bpf_insn *insns;
	const struct xk_live_site *site;
	struct xk_counters __percpu *counters;	/* of the site */
	struct xk_site_values values;
	u64 histogram[XK_POLICY_BUCKETS];
	struct {
		u64 kept;	/* decisions in which nothing was set */
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

/* The lists of a request, copied to kernel memory: reading user memory may take forever. */
struct xk_policy_lists {
	u32 *scopes;
	u32 *sites;
	s32 *links;
};

/* A scope whose activations are tracked. */
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

/* The decision of an activation. */
struct xk_decision {
	bool made;
	bool making;			/* the program is running */
	bool set;
	s64 value;
};

/* The state of the execution under way on this CPU, else &xk_policy_nobody. */
DECLARE_PER_CPU(struct xk_policy_cpu *, xk_policy_current);
extern struct xk_policy_cpu xk_policy_nobody;

/* policy.c. xk_policy_init() returns 0 or an error. */
int xk_policy_init(void);

/*
 * Replaces the policy that the next transition of a tune may use; program -1 removes it. Returns 0,
 * or an error with its reason in `error`: -EBUSY (in transition), -EOPNOTSUPP, -EINVAL, -EBADF,
 * -ENOENT, -EPERM, -ENOMEM and others. Takes xk_lock; sleeps.
 */
int xk_policy_load(struct file *caller, struct xk_policy *request, struct xk_error *error);

/*
 * Take and drop a reference; NULL is allowed. xk_policy_put() may be called in any context: a work
 * item frees the policy.
 */
struct xk_live_policy *xk_policy_get(struct xk_live_policy *policy);
void xk_policy_put(struct xk_live_policy *policy);

/*
 * Resets what the policy keeps for a site. The site is not armed, or the policy is not in force.
 * Under xk_lock.
 */
void xk_policy_forget(struct xk_live_policy *policy, const struct xk_live_site *site);

/* Fills `info` for site info->index of tune info->id. Returns 0 or -ENOENT. Takes xk_lock. */
int xk_policy_info(struct xk_policy_info *info);

/*
 * A module is being loaded, or removed: start or stop tracking activations in it. Under xk_lock;
 * sleep.
 */
void xk_policy_module_coming(struct xk_tune *tune);
void xk_policy_module_going(struct xk_tune *tune, const struct module *module);

/*
 * Whether RCU watches this CPU. Code where it does not has no stubs. But the maps of a program that
 * ran there could be freed, and no one would notice.
 */
static __always_inline bool xk_policy_may_run(void)
{
	return x86_this_cpu_variable_test_bit(ilog2(CT_RCU_WATCHING),
					      context_tracking.state.counter);
}

/* bpf_prog_active of the kernel; NULL until there is a policy. */
extern int __percpu *xk_bpf_active;

/* this_cpu_read() would load the variable first. This is one instruction less per execution. */
static __always_inline bool xk_bpf_is_running(void)
{
	bool running;

	asm volatile("cmpl $0, " __percpu_arg([active])
		     : "=@ccne" (running)
		     : [active] "m" (__my_cpu_var(*xk_bpf_active)));
	return running;
}

/*
 * Keeps programs apart, as trace_call_bpf() does for programs of perf. No program runs inside of
 * another one, or inside of a change of a map, which may hold a lock that the program needs.
 * Returns false if none may run now; else xk_bpf_leave() must follow. Preemption is disabled.
 */
static __always_inline bool xk_bpf_enter(void)
{
	if (unlikely(xk_bpf_is_running()))
		return false;
	this_cpu_inc(*xk_bpf_active);
	return true;
}

/* Ends what xk_bpf_enter() began. Preemption is still disabled. */
static __always_inline void xk_bpf_leave(void)
{
	this_cpu_dec(*xk_bpf_active);
}

/* decide.c. Called by handlers, with preemption disabled. */
void xk_policy_fill(struct xk_policy_cpu *cpu, s64 value);

/* The handler of a site whose version has a policy. Returns as xk_handle(). */
int xk_policy_handle(const struct xk_live_site *site, const struct xk_values *values,
		     struct pt_regs *regs);
/* Called only by entry.S, directly. Returns the value for the register. */
__noendbr u64 xk_detour_decide(struct pt_regs *regs, const struct xk_stub *stub);

/* activation.c. Under xk_lock, except as noted; the functions may sleep. */
/*
 * Copies the numbers of the scopes to be watched and of the sites that decide once. Returns 0, or
 * an error with its reason in `error`.
 */
int xk_activation_create(struct xk_live_policy *policy, const struct xk_tune *tune,
			 const struct xk_policy *request, const struct xk_policy_lists *lists,
		   struct xk_error *error);

/* Stops tracking and frees the watches. Without xk_lock: no one uses the policy. */
void xk_activation_destroy(struct xk_live_policy *policy);

/*
 * Tracks activations of the watched scopes whose code is loaded. Returns 0, or an error with its
 * reason in `error`; some may be tracked then.
 */
int xk_activation_arm(struct xk_live_policy *policy, const struct xk_tune *tune,
		      struct xk_error *error);

/* `module` is being removed: stops tracking activations in it. */
void xk_activation_await_module(struct xk_live_policy *policy, const struct xk_tune *tune,
				const struct module *module);

/* Returns the level of an execution; 0 for a thread. Called by handlers. */
u8 xk_level(const struct pt_regs *regs);

/*
 * Returns the decision of the activation in which a site is executed, or NULL if no probe saw it
 * start. Called by handlers.
 */
struct xk_decision *xk_activation_find(const struct xk_live_policy *policy,
				       const struct pt_regs *regs);

/* program.c. xk_program_init() returns 0 or an error. */
int xk_program_init(void);

/*
 * Returns the program of this descriptor with a reference, if it is accepted as a policy, or an
 * error as ERR_PTR(), with its reason in `error`. Under xk_lock; may sleep.
 */
struct bpf_prog *xk_program_get(int fd, struct xk_error *error);

/* The same for a probe. Its program may call any helper and kfunc that kprobes may. */
struct bpf_prog *xk_probe_program_get(int fd, struct xk_error *error);

/*
 * Whether the program may call a helper that reads current->bpf_ctx; of these, bpf_get_func_ip().
 */
bool xk_program_needs_context(const struct bpf_prog *program);
bool xk_program_asks_function(const struct bpf_prog *program);

/* kfuncs for policies only. In other programs they return an error, 0 or false. */
long xk_set(bpf_user_pt_regs_t *ctx, u64 value);
u64 xk_default(bpf_user_pt_regs_t *ctx);
u64 xk_value(bpf_user_pt_regs_t *ctx);
bool xk_transition_done(bpf_user_pt_regs_t *ctx);
bool xk_in_task(bpf_user_pt_regs_t *ctx);
u32 xk_site(bpf_user_pt_regs_t *ctx);

#endif /* _XK_POLICY_H */
