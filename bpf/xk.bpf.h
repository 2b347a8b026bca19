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
 * This execution uses `val`. -ERANGE: that value is not proved; it is counted, and
 * what was in force stays. Of several calls the last one that succeeds counts.
 */
extern long xk_set(xk_handle_t xk_ctx, u64 val) __ksym;

/* The value in the source. */
extern u64 xk_default(xk_handle_t xk_ctx) __ksym;

/* The value as it stands: set in this execution, or in force where nobody sets one. */
extern u64 xk_value(xk_handle_t xk_ctx) __ksym;

/* Whether all threads have gone over to the policy, and not this one only. */
extern bool xk_transition_done(xk_handle_t xk_ctx) __ksym;

/* How `xk load` knows which program belongs to which constant. */
struct xk_tune_entry {
	char program[64];
	char constant[256];
	char file[256];
	u32 line;
};

/*
 * A policy for a constant: a ConstID or an alias, as `xk list` shows them. The
 * body finds `xk_ctx`, and `ctx`: the registers where the value is used, which
 * are not the arguments of a function.
 */
#define XK_TUNE(name, const_id)							\
	static __always_inline int xk_policy_##name(struct pt_regs *ctx,	\
						    xk_handle_t xk_ctx);	\
	const struct xk_tune_entry xk_entry_##name SEC(".xk.tunes") = {		\
		#name, const_id, __FILE__, __LINE__,				\
	};									\
	SEC("kprobe") int name(struct pt_regs *ctx)				\
	{									\
		return xk_policy_##name(ctx, (xk_handle_t)ctx);			\
	}									\
	static __always_inline int xk_policy_##name(struct pt_regs *ctx,	\
						    xk_handle_t xk_ctx)

#endif /* _XK_BPF_H */
