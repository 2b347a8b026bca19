/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A checked program in the form in which handlers run it. Constants and values,
 * and whatever is computed from them alone, are placed in a frame once, when
 * the value is set; registers are fetched first and written last; what remains
 * in between are short steps over frame slots. Compiled in user space too,
 * where it is compared with ops.c.
 */
#ifndef _XK_PLAN_H
#define _XK_PLAN_H

#include "ops.h"
#include "shape.h"

enum xk_plan_kind {
	XK_PLAN_VALUE,		/* the shapes of shape.h */
	XK_PLAN_COMPARE,
	XK_PLAN_BINARY,
	XK_PLAN_SELECT,
	XK_PLAN_STEPS,		/* fetch, steps, commit */
	XK_PLAN_INTERPRET,	/* reads what it set: xk_ops_run() */
};

/* frame[slot] = (saved register >> shift) & mask */
struct xk_fetch {
	u16 reg;		/* offset in pt_regs */
	u8 slot;
	u8 shift;
	u64 mask;
};

/* saved register = (saved register & keep) | (frame[slot] & set) */
struct xk_commit {
	u16 reg;		/* offset in pt_regs */
	u8 slot;
	u64 keep;
	u64 set;
};

/* In the code of a step: xk_op_compute() is needed, operands may be wider. */
#define XK_STEP_GENERIC 0x80

struct xk_step {
	u8 code;
	u8 width;
	u8 dst;
	u8 a;
	u8 b;
	u8 c;
	u8 from;		/* XK_OP_SEXT: width to extend from */
	u64 mask;
	s64 imm;
};

struct xk_plan {
	u8 kind;
	u8 nr_ops;
	u8 nr_fetches;
	u8 nr_steps;
	u8 nr_folded;
	u8 nr_commits;
	u64 constants;		/* the slots that are set with the value */
	struct xk_shape shape;
	struct xk_fetch fetches[XK_MAX_OPS];
	struct xk_step steps[XK_MAX_OPS];
	struct xk_step folded[XK_MAX_OPS];	/* performed with the value */
	struct xk_commit commits[XK_MAX_OPS];
	struct xk_op ops[XK_MAX_OPS];
};

/* Prepares a program that xk_ops_check() accepted and xk_ops_link() linked. */
void xk_plan_build(struct xk_plan *plan, const struct xk_op *ops, unsigned int nr_ops);

/* Performs a step that depends on nothing but the frame. */
void xk_step_compute(const struct xk_step *step, u64 *frame);

/* Writes the constants, the values and what follows from them into a frame of nr_ops slots. */
void xk_plan_fill(const struct xk_plan *plan, const u64 *ivs, u64 *frame);

/* Runs XK_PLAN_STEPS. -EFAULT, and unchanged registers, when memory faulted. */
int xk_plan_run(const struct xk_plan *plan, u64 *frame, struct pt_regs *regs);

#endif /* _XK_PLAN_H */
