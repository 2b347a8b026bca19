/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policies for xk: eBPF programs that choose the value of a performance constant for each execution
 * of the code that uses it.
 *
 *  *	#include "xk.bpf.h"
 *
 *  *	XK_TUNE(small_plugs, "BLK_MAX_REQUEST_COUNT")
 *  *	{
 *  *		if (bpf_get_current_uid_gid() == 0)
 *  *			xk_set(xk_ctx, 4);
 *  *		return 0;
 *  *	}
 *
 * `xk load FILE` compiles it and puts all policies of the file into force together. Other programs
 * in the file (kprobes, kretprobes, tracepoints, ...) are attached with them. See docs/policies.md.
 */
#ifndef _XK_BPF_H
#define _XK_BPF_H

#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* The kernel requires GPL for the helpers that read kernel memory. This file is GPL, too. */
const char xk_license[] SEC("license") = "GPL";

/* Handle of one execution of a policy, for the functions below. Programs do not read through it. */
struct xk_ctx {
	struct pt_regs regs;
};

typedef const struct xk_ctx *xk_handle_t;

/*
 * Makes this execution use `val`. Returns 0; or -ERANGE if the table accepts no such value,
 * as it is neither proved nor compiled. Such a call is counted and ignored. The last
 * successful call decides.
 */
extern long xk_set(xk_handle_t xk_ctx, u64 val) __ksym;

/* Returns the value in the source. */
extern u64 xk_default(xk_handle_t xk_ctx) __ksym;

/* Returns the current value of this execution: the value set by xk_set(), or the value beneath. */
extern u64 xk_value(xk_handle_t xk_ctx) __ksym;

/*
 * Returns whether all threads have switched to the policy. Until then, some still use the old
 * value.
 */
extern bool xk_transition_done(xk_handle_t xk_ctx) __ksym;

/*
 * Returns whether a thread executes the site. In an interrupt, `current` is unrelated to the work.
 */
extern bool xk_in_task(xk_handle_t xk_ctx) __ksym;

/*
 * Returns the number of the site that is executed. Sites are numbered from 0, as in `xk explain`.
 */
extern u32 xk_site(xk_handle_t xk_ctx) __ksym;

/*
 * Reads a variable or argument of the kernel's source by name, at the site that is executed. `xk
 * load` determines its location at each site, and refuses a variable that is optimised away at one
 * of them. The compiled object is valid for one kernel build.
 */
#define XK_VAR(name) xk_var_##name(ctx, xk_ctx, xk_tune_line)

#if __has_include("xk_vars.h")
#include "xk_vars.h"
#endif

#ifndef XK_BUILD_ID
#define XK_BUILD_ID ""
#endif

/* Tells `xk load` which program belongs to which constant. */
struct xk_tune_entry {
	char program[64];
	char constant[256];
	char file[256];
	char build_id[64];	/* of the only kernel that it is for; empty: any */
	u32 line;
	u32 each;
};

/*
 * Defines a policy for a constant, given as a ConstID or an alias (see `xk list`). The body can use
 * `xk_ctx`, and `ctx`, the registers at the site. These are not the arguments of a function.
 *
 * If values of several sites may meet, the policy decides once per activation, that is, per call of
 * the outermost function in which they may meet.
 */
#define XK_TUNE(name, const_id) XK_TUNE_ENTRY(name, const_id, 0)

/* The same, but the policy decides at each site. One call may then mix different values. */
#define XK_TUNE_EACH(name, const_id) XK_TUNE_ENTRY(name, const_id, 1)

#define XK_TUNE_ENTRY(name, const_id, each)					\
	static __always_inline int						\
	xk_policy_##name(struct pt_regs *ctx, xk_handle_t xk_ctx,		\
			 const int xk_tune_line);				\
	const struct xk_tune_entry xk_entry_##name SEC(".xk.tunes") = {		\
		#name, const_id, __FILE__, XK_BUILD_ID, __LINE__, each,		\
	};									\
	SEC("kprobe") int name(struct pt_regs *ctx)				\
	{									\
		return xk_policy_##name(ctx, (xk_handle_t)ctx, __LINE__);	\
	}									\
	static __always_inline int						\
	xk_policy_##name(struct pt_regs *ctx, xk_handle_t xk_ctx,		\
			 const int xk_tune_line)

#endif /* _XK_BPF_H */
