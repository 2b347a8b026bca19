/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The operations of an update: the check when a tune is loaded, and the interpreter. The functions
 * take no locks and do not sleep. Compiled into xk.ko and, unchanged, in user space (see user/).
 */
#ifndef _XK_OPS_H
#define _XK_OPS_H

#ifdef __KERNEL__
#include <linux/kprobes.h>
#include <linux/ptrace.h>
#include <linux/string.h>
#include <linux/types.h>
#else
#include "user/shim.h"
#endif

#include "uapi/xk.h"

/* Why a program was refused: the operation (or -1), a phrase, and a value. */
struct xk_ops_error {
	int op;
	const char *what;
	s64 value;
};

/* Returns the encoded value for V. */
u64 xk_iv_apply(const struct xk_iv *iv, s64 v);

/* Whether the function from V to the encoded value is valid for xk_iv_apply(). */
bool xk_iv_ok(const struct xk_iv *iv);

/* What the site of a program provides. */
struct xk_ops_limits {
	unsigned int nr_ivs;
	u32 text_len;		/* of the function */
	bool stores;		/* it declares them */
};

/* Checks a program. Returns 0, or -EINVAL with the reason in `err`. */
int xk_ops_check(const struct xk_op *ops, unsigned int nr_ops,
		 const struct xk_ops_limits *limits, struct xk_ops_error *err);

/*
 * Replaces each XK_OP_TEXT of a checked program by the number that it means. `text` is the
 * function, which runs at `address`. The other functions do not know XK_OP_TEXT.
 */
void xk_ops_link(struct xk_op *ops, unsigned int nr_ops, const u8 *text, u64 address);

/* The operands that an operation reads as temporaries: bits 0 a, 1 b, 2 c. */
unsigned int xk_op_reads(u8 code);

/*
 * Executes a checked and linked program. Returns 0; or -EFAULT if memory could not be accessed, and
 * registers and flags have not changed. In any context.
 */
int xk_ops_run(const struct xk_op *ops, unsigned int nr_ops, const u64 *ivs,
	       struct pt_regs *regs);

/* The offset in pt_regs of the general register with the processor's number n. */
extern const u16 xk_reg_offset[16];

/* Returns the place of a general register in `regs`. */
static __always_inline u64 *xk_reg(struct pt_regs *regs, unsigned int number)
{
	return (u64 *)((char *)regs + xk_reg_offset[number]);
}

/* Returns a mask of the low `width` bytes. */
static __always_inline u64 xk_width_mask(u8 width)
{
	return ~0ULL >> (64 - 8 * width);
}

/* Computes an operation that reads temporaries and has no side effect. `from` is operand b. */
u64 xk_op_compute(u8 code, u8 width, u8 from, s64 imm, u64 a, u64 b, u64 c);

#endif /* _XK_OPS_H */
