/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Compiles a checked program to native code. Results that depend only on the value are computed
 * when the value is set. The rest becomes code, in one of two forms:
 *
 *  *	in a stub	the registers are those of the site
 *  *	a function	the registers are in a pt_regs; handlers call it
 *
 * A program that cannot be compiled is interpreted by xk_ops_run(). A fuzzer in user space compares
 * the two. The functions take no locks and do not sleep.
 */
#ifndef _XK_NATIVE_H
#define _XK_NATIVE_H

#include "ops/emit.h"
#include "ops/ops.h"

/* The maximum number of constants that code reads. */
#define XK_NATIVE_CONSTANTS 6

enum xk_native_kind {
	XK_NATIVE_VALUE,	/* sets one register to a constant */
	XK_NATIVE_CODE,
	XK_NATIVE_PLAIN,	/* no code: xk_ops_run() */
};

struct xk_native {
	u8 kind;
	u8 nr_ops;
	u8 nr_constants;
	u8 nr_reads;		/* number of reads of constants by the code */
	u8 constants[XK_NATIVE_CONSTANTS];	/* the operations that compute them */
	u16 to;			/* XK_NATIVE_VALUE: offset of the register in pt_regs */
	u64 known;		/* bitmap of operations that follow from the value alone */
	/* Operands are the numbers of the operations that computed them. */
	struct xk_op ops[XK_MAX_OPS];
};

/* A compiled function. Returns 0; or -EFAULT, and nothing has changed. */
typedef int (*xk_native_fn)(struct pt_regs *regs, const u64 *constants);

/* Where the code will be, and what it uses there. */
struct xk_native_place {
	bool function;
	/*
	 * In a stub: the constant, if there is one that is read once; else the pointer to all of
	 * them.
	 */
	const u64 *constant;
	const u64 *const *constants;
	/* The address to which a function jumps to return. */
	unsigned long ret;
};

/* Notes about the emitted code, for xk_native_emit_fault(). */
struct xk_native_code {
	u16 saved;		/* registers on the stack */
	bool flags;		/* the flags are on the stack, too */
	u8 nr_faults;
	unsigned int faults[4];	/* jumps to the code for memory faults */
};

/* Compiles a program that xk_ops_check() accepted and xk_ops_link() linked. */
void xk_native_build(struct xk_native *native, const struct xk_op *ops, unsigned int nr_ops);

/* Whether code in a stub reads its own copy of the constant, which may change at any time. */
static inline bool xk_native_reads_one(const struct xk_native *native)
{
	return native->nr_constants == 1 && native->nr_reads == 1;
}

/* Computes the constants for one value. */
void xk_native_fill(const struct xk_native *native, const u64 *ivs, u64 *constants);

/*
 * Emits the code of a program that is not XK_NATIVE_PLAIN. In a stub it continues after its end.
 * Returns false, and emits nothing, if it cannot be compiled for that place.
 */
bool xk_native_emit(struct xk_emitter *out, const struct xk_native *native,
		    const struct xk_native_place *place, struct xk_native_code *code);

/*
 * Emits the code that runs if memory faults, when nothing has changed. In a stub it continues at
 * `target`.
 */
void xk_native_emit_fault(struct xk_emitter *out, const struct xk_native_place *place,
			  const struct xk_native_code *code, unsigned long target);

/*
 * native_memory.S. Load from the address in %rax to %rax, or store %rcx to that address. Carry is
 * set if the access faulted or the address is not allowed. Otherwise only flags change.
 */
extern u8 xk_native_load1[], xk_native_load2[], xk_native_load4[], xk_native_load8[];
extern u8 xk_native_store1[], xk_native_store2[], xk_native_store4[], xk_native_store8[];
/* Loads the base of gs into %rax. */
extern u8 xk_native_per_cpu[];
extern u8 xk_native_return[];

#endif /* _XK_NATIVE_H */
