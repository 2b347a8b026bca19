/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A checked program as instructions of the processor. What follows from the value alone
 * is computed when the value is set; what is left becomes code, for one of two places:
 *
 *	in a stub	the registers are those of the site
 *	a function	they are in a pt_regs; called by handlers
 *
 * What it has no instructions for is left to xk_ops_run(), which it is compared with in
 * user space.
 */
#ifndef _XK_NATIVE_H
#define _XK_NATIVE_H

#include "ops/emit.h"
#include "ops/ops.h"

/* What of a value code may read. */
#define XK_NATIVE_CONSTANTS 6

enum xk_native_kind {
	XK_NATIVE_VALUE,	/* a register becomes a constant */
	XK_NATIVE_CODE,
	XK_NATIVE_PLAIN,	/* no code: xk_ops_run() */
};

struct xk_native {
	u8 kind;
	u8 nr_ops;
	u8 nr_constants;
	u8 nr_reads;		/* of constants, by what is left */
	u8 constants[XK_NATIVE_CONSTANTS];	/* the operations that give them */
	u16 to;			/* XK_NATIVE_VALUE: the register's offset in pt_regs */
	u64 known;		/* operations that follow from the value alone */
	/* Operands are the numbers of the operations whose results they are. */
	struct xk_op ops[XK_MAX_OPS];
};

/* Of a function: 0, or -EFAULT and nothing was changed. */
typedef int (*xk_native_fn)(struct pt_regs *regs, const u64 *constants);

/* Where code is to lie, and what it finds there. */
struct xk_native_place {
	bool function;
	/* In a stub: the one constant, if it is read once, or else what points to all. */
	const u64 *constant;
	const u64 *const *constants;
	/* Where a function goes in order to return. */
	unsigned long ret;
};

/* What has been written, for xk_native_emit_fault(). */
struct xk_native_code {
	u16 saved;		/* registers on the stack */
	bool flags;		/* so are flags */
	u8 nr_faults;
	unsigned int faults[4];	/* jumps to where it goes on when memory faults */
};

/* Prepares a program that xk_ops_check() accepted and xk_ops_link() linked. */
void xk_native_build(struct xk_native *native, const struct xk_op *ops, unsigned int nr_ops);

/* Code in a stub reads a variable of its own, which may change at any time. */
static inline bool xk_native_reads_one(const struct xk_native *native)
{
	return native->nr_constants == 1 && native->nr_reads == 1;
}

/* The constants for one value. */
void xk_native_fill(const struct xk_native *native, const u64 *ivs, u64 *constants);

/*
 * The code of a program that is not XK_NATIVE_PLAIN; in a stub it goes on behind itself.
 * False, and nothing was written, when there is none for that place.
 */
bool xk_native_emit(struct xk_emitter *out, const struct xk_native *native,
		    const struct xk_native_place *place, struct xk_native_code *code);

/* What is reached when memory faults, and nothing was changed; in a stub it goes on there. */
void xk_native_emit_fault(struct xk_emitter *out, const struct xk_native_place *place,
			  const struct xk_native_code *code, unsigned long target);

/*
 * native.S. Of the address in %rax to %rax, or of %rcx to there. Carry: it faulted, or is
 * not the kernel's. Nothing else changes but flags.
 */
extern u8 xk_native_load1[], xk_native_load2[], xk_native_load4[], xk_native_load8[];
extern u8 xk_native_store1[], xk_native_store2[], xk_native_store4[], xk_native_store8[];
/* The base of gs to %rax. */
extern u8 xk_native_per_cpu[];
extern u8 xk_native_return[];

#endif /* _XK_NATIVE_H */
