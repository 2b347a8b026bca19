/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Updates of the commonest shapes, which need no frame and no loop:
 *
 *	VALUE	register = constant
 *	COMPARE	flags = those of comparing a source with a constant
 *	BINARY	register = source operation constant
 *	SELECT	register = condition on a source ? constant : constant,
 *		also when the constants are computed from the condition
 *
 * where a source is a part of a register, the flags, or memory at a register
 * plus a displacement. Everything is inline: this is the path on which an
 * instruction counts.
 */
#ifndef _XK_SHAPE_H
#define _XK_SHAPE_H

#include "memory.h"
#include "ops.h"

enum xk_shape_test {
	XK_TEST_FLAGS,		/* a condition code, see xk_shape_holds() */
	XK_TEST_EQUAL,
	XK_TEST_BELOW,		/* source < constant */
	XK_TEST_ABOVE,
};

#define XK_SHAPE_CONSTANTS 3

/* constants[i] = (frame[slot] & mask) ^ flip, unless the shape has a decision */
struct xk_shape_constant {
	u8 slot;
	u64 mask;
	u64 flip;
};

struct xk_shape {
	u16 from;		/* source register: offset in pt_regs */
	u16 to;			/* register that is set: offset in pt_regs */
	bool memory;		/* the source is memory at the register */
	u8 width;		/* of that memory */
	u8 shift;		/* of the register: 8 for %ah */
	u8 operation;		/* enum xk_op_code or enum xk_shape_test */
	u8 compare_width;
	s64 displacement;
	u64 source_mask;
	u64 source_flip;	/* sign bit, for signed tests */
	u64 test_fold;		/* XK_TEST_FLAGS: fold OF into SF under this */
	u64 test_mask;		/* XK_TEST_FLAGS */
	u64 keep;		/* bits of the register that stay */
	u64 set;		/* bits of the register that change */
	struct xk_shape_constant constants[XK_SHAPE_CONSTANTS];
	/*
	 * XK_PLAN_SELECT whose arms are computed: by the steps from this one on,
	 * from a truth value in the decision's slot. 0 when there is none, as
	 * the decision itself is a step before them.
	 */
	u8 arms;
	u8 decision;
	u8 result;
	bool negated;		/* the arms are the other way round */
};

struct xk_plan;

/* Recognises a shape in a plan of steps; returns the kind that it has then. */
unsigned int xk_shape_match(struct xk_shape *shape, const struct xk_plan *plan);

/* The constants of a plan's shape, from a frame filled by xk_plan_fill(). */
void xk_shape_fill(const struct xk_plan *plan, const u64 *frame, u64 *constants);

/* The status flags of cmp b, a. */
static __always_inline u64 xk_compare(u64 a, u64 b, u8 width)
{
	u64 flags;

	if (width == 4)
		asm ("cmpl %k2, %k1\n\tpushfq\n\tpopq %0"
		     : "=r" (flags) : "r" (a), "r" (b) : "cc", "memory");
	else if (width == 8)
		asm ("cmpq %2, %1\n\tpushfq\n\tpopq %0"
		     : "=r" (flags) : "r" (a), "r" (b) : "cc", "memory");
	else if (width == 1)
		asm ("cmpb %b2, %b1\n\tpushfq\n\tpopq %0"
		     : "=r" (flags) : "q" (a), "q" (b) : "cc", "memory");
	else
		asm ("cmpw %w2, %w1\n\tpushfq\n\tpopq %0"
		     : "=r" (flags) : "r" (a), "r" (b) : "cc", "memory");
	return flags;
}

static __always_inline int
xk_shape_source(const struct xk_shape *shape, struct pt_regs *regs, u64 *source)
{
	u64 reg = *(u64 *)((char *)regs + shape->from);

	if (shape->memory)
		return xk_memory_load(reg + shape->displacement, shape->width, source);
	*source = (reg >> shape->shift) & shape->source_mask;
	return 0;
}

static __always_inline void
xk_shape_commit(const struct xk_shape *shape, struct pt_regs *regs, u64 result)
{
	u64 *to = (u64 *)((char *)regs + shape->to);

	*to = (*to & shape->keep) | (result & shape->set);
}

static __always_inline void
xk_shape_value(const struct xk_shape *shape, const u64 *constants, struct pt_regs *regs)
{
	*(u64 *)((char *)regs + shape->to) = constants[0];
}

static __always_inline int
xk_shape_compare(const struct xk_shape *shape, const u64 *constants, struct pt_regs *regs)
{
	u64 source;

	if (xk_shape_source(shape, regs, &source))
		return -EFAULT;
	xk_shape_commit(shape, regs, xk_compare(source, constants[0], shape->compare_width));
	return 0;
}

static __always_inline int
xk_shape_binary(const struct xk_shape *shape, const u64 *constants, struct pt_regs *regs)
{
	u64 source, result;
	u64 constant = constants[0];

	if (xk_shape_source(shape, regs, &source))
		return -EFAULT;
	switch (shape->operation) {
	case XK_OP_ADD:
		result = source + constant;
		break;
	case XK_OP_SUB:
		result = source - constant;
		break;
	case XK_OP_AND:
		result = source & constant;
		break;
	case XK_OP_OR:
		result = source | constant;
		break;
	case XK_OP_XOR:
		result = source ^ constant;
		break;
	case XK_OP_SHL:
		result = constant < 64 ? source << constant : 0;
		break;
	default:
		result = constant < 64 ? source >> constant : 0;
	}
	xk_shape_commit(shape, regs, result);
	return 0;
}

/*
 * Six of the eight pairs of condition codes ask whether one of some flags is
 * set; the other two do once the overflow flag is folded into the sign flag.
 */
static __always_inline bool
xk_shape_holds(const struct xk_shape *shape, u64 source, u64 constant)
{
	source ^= shape->source_flip;
	switch (shape->operation) {
	case XK_TEST_FLAGS:
		return (source ^ ((source >> 4) & shape->test_fold)) & shape->test_mask;
	case XK_TEST_EQUAL:
		return source == constant;
	case XK_TEST_BELOW:
		return source < constant;
	default:
		return source > constant;
	}
}

static __always_inline int
xk_shape_select(const struct xk_shape *shape, const u64 *constants, struct pt_regs *regs)
{
	u64 source;

	if (xk_shape_source(shape, regs, &source))
		return -EFAULT;
	xk_shape_commit(shape, regs,
			constants[xk_shape_holds(shape, source, constants[0]) ? 1 : 2]);
	return 0;
}

#endif /* _XK_SHAPE_H */
