/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policies for xk: what the value of a performance constant is, for each
 * execution of the code that uses it.
 *
 *	#include "xk.bpf.h"
 *
 *	XK_TUNE(small_plugs, "BLK_MAX_REQUEST_COUNT")
 *	{
 *		if (bpf_get_current_uid_gid() == 0)
 *			xk_set(xk_ctx, 4);
 *		return 0;
 *	}
 *
 * `xk load FILE` compiles it and puts all policies of the file into force
 * together. Other programs in the file (kprobes, kretprobes, tracepoints, ...)
 * are attached with them. See docs/policies.md.
 */
#ifndef _XK_BPF_H
#define _XK_BPF_H

#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Programs that read the kernel must be under its licence; and so is this file. */
const char xk_license[] SEC("license") = "GPL";

/* Of one execution of a policy; its address means nothing to anybody else. */
struct xk_ctx {
	struct pt_regs regs;
};

typedef const struct xk_ctx *xk_handle_t;

/*
 * This execution uses `val`. -ERANGE: the table accepts no such value, as it is neither
 * proved nor compiled; the call is counted, and the value from before applies. Of several
 * calls, the last one that succeeds applies.
 */
extern long xk_set(xk_handle_t xk_ctx, u64 val) __ksym;

/* The value in the source. */
extern u64 xk_default(xk_handle_t xk_ctx) __ksym;

/* The value as it stands: set in this execution, or in force where nobody sets one. */
extern u64 xk_value(xk_handle_t xk_ctx) __ksym;

/* Whether all threads have switched to the policy, and not this one only. */
extern bool xk_transition_done(xk_handle_t xk_ctx) __ksym;

/* Whether a thread is here: `current` means nothing to an interrupt above it. */
extern bool xk_in_task(xk_handle_t xk_ctx) __ksym;

/* Which of the constant's places is reached: their numbers, from 0, as `xk explain` shows them. */
extern u32 xk_site(xk_handle_t xk_ctx) __ksym;

/*
 * A variable or argument of the kernel's source by its name, where the value is
 * used. `xk load` finds out where it is at each of the places, and refuses what is
 * optimised away at one of them. Such an object serves one kernel build.
 */
#define XK_VAR(name) xk_var_##name(ctx, xk_ctx, xk_tune_line)

#if __has_include("xk_vars.h")
#include "xk_vars.h"
#endif

#ifndef XK_BUILD_ID
#define XK_BUILD_ID ""
#endif

/* How `xk load` knows which program belongs to which constant. */
struct xk_tune_entry {
	char program[64];
	char constant[256];
	char file[256];
	char build_id[64];	/* of the kernel that it is for; empty: any */
	u32 line;
	u32 each;
};

/*
 * A policy for a constant: a ConstID or an alias, as `xk list` shows them. The
 * body finds `xk_ctx`, and `ctx`: the registers where the value is used, which
 * are not the arguments of a function.
 *
 * Where several places use the constant and their values may meet, it decides
 * once, for a call of the outermost function in which they may.
 */
#define XK_TUNE(name, const_id) XK_TUNE_ENTRY(name, const_id, 0)

/* Likewise, but it decides at each place: what it decides may be mixed in one call. */
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
