// SPDX-License-Identifier: GPL-2.0-only
/*
 * Determines which operations of a program depend on nothing but the value, and which ones
 * native_code.c must emit. The result of an operation is identified by the number of the operation.
 */
#include "ops/native.h"

static bool is_effect(u8 code)
{
	return code == XK_OP_SET_REG || code == XK_OP_SET_FLAGS || code == XK_OP_STORE;
}

/* Renames operands. `by` is the operation that wrote each temporary. */
static struct xk_op rename_operands(struct xk_op op, const u8 *by)
{
	unsigned int reads = xk_op_reads(op.code);

	if (reads & 1)
		op.a = by[op.a];
	if (reads & 2)
		op.b = by[op.b];
	if (reads & 4)
		op.c = by[op.c];
	return op;
}

static bool follows(const struct xk_native *native, const struct xk_op *op)
{
	unsigned int reads = xk_op_reads(op->code);

	switch (op->code) {
	case XK_OP_IV:
	case XK_OP_IMM:
		return true;
	case XK_OP_REG:
	case XK_OP_FLAGS:
	case XK_OP_LOAD:
	case XK_OP_PER_CPU:
		return false;
	}
	return !is_effect(op->code) &&
	       (!(reads & 1) || native->known & (1ULL << op->a)) &&
	       (!(reads & 2) || native->known & (1ULL << op->b)) &&
	       (!(reads & 4) || native->known & (1ULL << op->c));
}

static bool add_constant(struct xk_native *native, u8 number)
{
	unsigned int i;

	if (!(native->known & (1ULL << number)))
		return true;
	native->nr_reads++;
	for (i = 0; i < native->nr_constants; i++)
		if (native->constants[i] == number)
			return true;
	if (native->nr_constants == XK_NATIVE_CONSTANTS)
		return false;
	native->constants[native->nr_constants++] = number;
	return true;
}

/*
 * Collects the constants that the remaining operations read. Returns false if there are too many.
 */
static bool collect_constants(struct xk_native *native)
{
	unsigned int i, reads;

	for (i = 0; i < native->nr_ops; i++) {
		const struct xk_op *op = &native->ops[i];

		if (native->known & (1ULL << i))
			continue;
		reads = xk_op_reads(op->code);
		if ((reads & 1 && !add_constant(native, op->a)) ||
		    (reads & 2 && !add_constant(native, op->b)) ||
		    (reads & 4 && !add_constant(native, op->c)))
			return false;
	}
	return true;
}

/*
 * Registers and flags must be written last, and memory by the last access. Then nothing reads what
 * was written, and nothing has changed if an access faults.
 */
static bool writes_last(const struct xk_native *native)
{
	bool stored = false, set = false;
	unsigned int i;

	for (i = 0; i < native->nr_ops; i++) {
		switch (native->ops[i].code) {
		case XK_OP_REG:
		case XK_OP_FLAGS:
			if (set)
				return false;
			break;
		case XK_OP_LOAD:
			if (stored)
				return false;
			break;
		case XK_OP_STORE:
			if (stored)
				return false;
			stored = true;
			break;
		case XK_OP_SET_REG:
		case XK_OP_SET_FLAGS:
			set = true;
			break;
		}
	}
	return true;
}

/* Whether the only effect is that a whole register is set to the only constant. */
static bool is_value(const struct xk_native *native)
{
	const struct xk_op *effect = NULL;
	unsigned int i;

	for (i = 0; i < native->nr_ops; i++) {
		if (native->known & (1ULL << i))
			continue;
		if (effect || native->ops[i].code != XK_OP_SET_REG)
			return false;
		effect = &native->ops[i];
	}
	/* A wider constant would have to be truncated. */
	return effect && effect->width >= 4 && native->ops[effect->a].width <= effect->width;
}

void xk_native_build(struct xk_native *native, const struct xk_op *ops, unsigned int nr_ops)
{
	u8 by[XK_MAX_TEMPS] = {};
	unsigned int i;

	memset(native, 0, sizeof(*native));
	native->nr_ops = nr_ops;
	for (i = 0; i < nr_ops; i++) {
		native->ops[i] = rename_operands(ops[i], by);
		if (follows(native, &native->ops[i]))
			native->known |= 1ULL << i;
		if (!is_effect(ops[i].code))
			by[ops[i].dst] = i;
	}
	if (!collect_constants(native) || !writes_last(native)) {
		native->kind = XK_NATIVE_PLAIN;
		return;
	}
	native->kind = XK_NATIVE_CODE;
	for (i = 0; i < nr_ops && is_value(native); i++) {
		if (native->ops[i].code != XK_OP_SET_REG)
			continue;
		native->kind = XK_NATIVE_VALUE;
		native->to = xk_reg_offset[native->ops[i].dst];
	}
}

void xk_native_fill(const struct xk_native *native, const u64 *ivs, u64 *constants)
{
	u64 results[XK_MAX_OPS] = {};
	unsigned int i;

	for (i = 0; i < native->nr_ops; i++) {
		const struct xk_op *op = &native->ops[i];
		const unsigned int reads = xk_op_reads(op->code);

		if (!(native->known & (1ULL << i)))
			continue;
		if (op->code == XK_OP_IV)
			results[i] = ivs[op->imm] & xk_width_mask(op->width);
		else if (op->code == XK_OP_IMM)
			results[i] = op->imm & xk_width_mask(op->width);
		else
			results[i] = xk_op_compute(op->code, op->width, op->b, op->imm,
						   results[op->a], reads & 2 ? results[op->b] : 0,
						   reads & 4 ? results[op->c] : 0);
	}
	for (i = 0; i < native->nr_constants; i++)
		constants[i] = results[native->constants[i]];
}
