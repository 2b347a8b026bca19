/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For probes (SEC("xk/WHERE"); docs/probes.md): variables of the kernel's source, and the target of
 * an indirect call (SEC("xk/WHERE@indirect-call")).
 *
 * Include vmlinux.h, bpf/bpf_helpers.h and bpf/bpf_tracing.h before it.
 */
#ifndef _XK_PROBE_BPF_H
#define _XK_PROBE_BPF_H

/*
 * Reads a variable or argument of the kernel's source by name, before the probed instruction. `ctx`
 * is the context of the program. `xk probe run` determines its location at each instruction of the
 * program, and refuses a variable that is optimised away at one of them. The compiled object is
 * valid for one kernel build.
 */
#define XK_VAR(name) xk_var_##name(ctx)

/* Tells `xk probe run` which instruction an entry of xk_at stands for, in which build. */
struct xk_place {
	char name[192];
	char build_id[64];
};

#if __has_include("xk_vars.h")
#include "xk_vars.h"
#endif

/*
 * The cookie of an indirect call: the number of the place in the section, and how the registers
 * before the instruction give the target (crates/xk-probe/src/operand.rs).
 */
#define XK_PLACE(cookie) ((__u32)(cookie) & 0xffff)
#define XK_BASE(cookie) ((__u32)((cookie) >> 16) & 0x1f)
#define XK_INDEX(cookie) ((__u32)((cookie) >> 21) & 0x1f)
#define XK_SCALE(cookie) ((__u32)((cookie) >> 26) & 3)
#define XK_IN_MEMORY(cookie) ((cookie) & (1ULL << 28))
#define XK_DISPLACEMENT(cookie) ((__s64)(cookie) >> 32)

/*
 * A field of the context. The compiler would make one load of several at an address that depends on
 * the case, which the verifier refuses.
 */
#define XK_FIELD(ctx, field)						\
	({								\
		__u64 value;						\
									\
		asm volatile("%[to] = *(u64 *)(%[from] + %[at])"	\
			     : [to] "=r" (value)			\
			     : [from] "r" (ctx),			\
			       [at] "i" (__builtin_offsetof(struct pt_regs, field)));	\
		value;							\
	})

/* A register by its number in instructions, from 1; 0 is no register. */
static __always_inline __u64 xk_register(struct pt_regs *ctx, __u32 number)
{
	switch (number) {
	case 1:
		return XK_FIELD(ctx, ax);
	case 2:
		return XK_FIELD(ctx, cx);
	case 3:
		return XK_FIELD(ctx, dx);
	case 4:
		return XK_FIELD(ctx, bx);
	case 5:
		return XK_FIELD(ctx, sp);
	case 6:
		return XK_FIELD(ctx, bp);
	case 7:
		return XK_FIELD(ctx, si);
	case 8:
		return XK_FIELD(ctx, di);
	case 9:
		return XK_FIELD(ctx, r8);
	case 10:
		return XK_FIELD(ctx, r9);
	case 11:
		return XK_FIELD(ctx, r10);
	case 12:
		return XK_FIELD(ctx, r11);
	case 13:
		return XK_FIELD(ctx, r12);
	case 14:
		return XK_FIELD(ctx, r13);
	case 15:
		return XK_FIELD(ctx, r14);
	case 16:
		return XK_FIELD(ctx, r15);
	default:
		return 0;
	}
}

/*
 * The register with the target of the calls at which this copy of the program runs; 0: the cookie
 * says it. `xk probe run` loads a copy for each register. The verifier removes the code for others.
 */
static const volatile __u64 xk_call_register __attribute__((unused)) = 0;

/* What the instruction is about to call; 0 if its memory cannot be read. */
static __always_inline __u64 xk_call_target(struct pt_regs *ctx)
{
	__u64 address, target = 0, cookie, own = xk_call_register;

	if (own)
		return xk_register(ctx, own);
	cookie = bpf_get_attach_cookie(ctx);
	address = xk_register(ctx, XK_BASE(cookie));
	if (!XK_IN_MEMORY(cookie))
		return address;
	address += xk_register(ctx, XK_INDEX(cookie)) << XK_SCALE(cookie);
	address += XK_DISPLACEMENT(cookie);
	if (bpf_probe_read_kernel(&target, sizeof(target), (void *)address))
		return 0;
	return target;
}

#endif /* _XK_PROBE_BPF_H */
