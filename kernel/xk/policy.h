/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policies: a BPF program chooses the value of each execution of a site. It
 * reads what it likes and writes nothing; whether its choice is accepted, and
 * what becomes of it, is decided here.
 */
#ifndef _XK_POLICY_H
#define _XK_POLICY_H

#include <linux/bpf.h>
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "xk.h"

/* Of one site, on one CPU. Used by one execution at a time: see xk_policy_handle(). */
struct xk_policy_cpu {
	bool filled;
	s64 value;			/* for which the rest was computed */
	struct xk_site_values values;
	struct {
		u64 runs;
		u64 chosen;
		u64 refused;
		u64 skipped;
		u64 reused;
		u64 unseen;
	} count;
	u64 histogram[XK_POLICY_BUCKETS];
};

struct xk_policy_site {
	struct xk_policy_cpu __percpu *cpus;
	u64 __percpu *frame;
	bool once;			/* decides once in an activation of a watched scope */
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
	struct file **links;		/* kept open */
	unsigned int nr_watches;
	struct xk_watch *watches;
	unsigned int nr_sites;
	struct xk_policy_site sites[] __counted_by(nr_sites);
};

/* One execution of a program, or what is remembered of one. */
struct xk_decision {
	bool made;
	bool set;
	s64 value;
};

/* What the kfuncs of program.c need; the one under way on this CPU. */
struct xk_run {
	const struct pt_regs *regs;
	const struct xk_live_site *site;
	const struct xk_values *values;
	struct xk_policy_cpu *cpu;
	struct xk_decision decision;
};

DECLARE_PER_CPU(struct xk_run *, xk_run_current);

/* policy.c */
int xk_policy_init(void);
int xk_policy_load(struct file *caller, struct xk_policy *request, struct xk_error *error);
struct xk_live_policy *xk_policy_get(struct xk_live_policy *policy);
void xk_policy_put(struct xk_live_policy *policy);
void xk_policy_forget(struct xk_live_policy *policy, const struct xk_live_site *site);
int xk_policy_info(struct xk_policy_info *info);
void xk_policy_module_coming(struct xk_tune *tune);
void xk_policy_module_going(struct xk_tune *tune, const struct module *module);

/* decide.c */
int xk_policy_handle(const struct xk_live_site *site, const struct xk_values *values,
		     struct pt_regs *regs);

/* once.c */
int xk_once_create(struct xk_live_policy *policy, const struct xk_tune *tune,
		   const struct xk_policy *request, struct xk_error *error);
void xk_once_destroy(struct xk_live_policy *policy);
int xk_once_arm(struct xk_live_policy *policy, const struct xk_tune *tune, struct xk_error *error);
void xk_once_await_module(struct xk_live_policy *policy, const struct xk_tune *tune,
			  const struct module *module);
struct xk_decision *xk_once_find(const struct xk_live_policy *policy,
				 const struct pt_regs *regs);

/* program.c */
int xk_program_init(void);
struct bpf_prog *xk_program_get(int fd, struct xk_error *error);

/* What policies call: kfuncs, not for anybody else. */
long xk_set(bpf_user_pt_regs_t *ctx, u64 value);
u64 xk_default(bpf_user_pt_regs_t *ctx);
u64 xk_value(bpf_user_pt_regs_t *ctx);
bool xk_transition_done(bpf_user_pt_regs_t *ctx);

#endif /* _XK_POLICY_H */
