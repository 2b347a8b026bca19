// SPDX-License-Identifier: GPL-2.0-only
/*
 * The operations of an update. The checker accepts a list of operations from user space, or names
 * the operation that breaks a rule. It refuses temporaries that are read before they are written,
 * registers that a probe cannot set, and stores that the site does not declare. The interpreter
 * executes an accepted list.
 *
 * The interpreter follows uapi/xk.h to the letter. Handlers and stubs use native code (native.h) if
 * there is some. A fuzzer in user space compares the two.
 */
#include "ops/ops.h"
#include "ops/memory.h"

#define EFLAGS_CF 0x001
#define EFLAGS_PF 0x004
#define EFLAGS_AF 0x010
#define EFLAGS_ZF 0x040
#define EFLAGS_SF 0x080
#define EFLAGS_OF 0x800

#define RSP 4

/* XK_OP_TEXT: length of the field, and maximum length of an immediate after it. */
#define XK_TEXT_FIELD 4
#define XK_TEXT_MAX_BEHIND 8

const u16 xk_reg_offset[16] = {
	offsetof(struct pt_regs, ax),  offsetof(struct pt_regs, cx),
	offsetof(struct pt_regs, dx),  offsetof(struct pt_regs, bx),
	offsetof(struct pt_regs, sp),  offsetof(struct pt_regs, bp),
	offsetof(struct pt_regs, si),  offsetof(struct pt_regs, di),
	offsetof(struct pt_regs, r8),  offsetof(struct pt_regs, r9),
	offsetof(struct pt_regs, r10), offsetof(struct pt_regs, r11),
	offsetof(struct pt_regs, r12), offsetof(struct pt_regs, r13),
	offsetof(struct pt_regs, r14), offsetof(struct pt_regs, r15),
};

static bool width_ok(u8 width)
{
	return width == 1 || width == 2 || width == 4 || width == 8;
}

unsigned int notrace xk_op_reads(u8 code)
{
	switch (code) {
	case XK_OP_IV:
	case XK_OP_IMM:
	case XK_OP_REG:
	case XK_OP_FLAGS:
	case XK_OP_TEXT:
	case XK_OP_PER_CPU:
		return 0;
	case XK_OP_LOAD:
	case XK_OP_NOT:
	case XK_OP_NEG:
	case XK_OP_SEXT:
	case XK_OP_FLAGS_LOGIC:
	case XK_OP_COND:
	case XK_OP_SET_REG:
	case XK_OP_SET_FLAGS:
		return 1;
	case XK_OP_SELECT:
		return 7;
	default:
		return 3;
	}
}

static int refuse_op(struct xk_ops_error *err, int op, const char *what, s64 value)
{
	err->op = op;
	err->what = what;
	err->value = value;
	return -EINVAL;
}

/* The field must lie in the function, with at most an immediate after it. */
static int check_text(const struct xk_op *op, int i, u32 text_len, struct xk_ops_error *err)
{
	if (op->imm < 0 || op->imm > (s64)text_len - XK_TEXT_FIELD)
		return refuse_op(err, i, "not in the function", op->imm);
	if (op->b > 1 || op->c > XK_TEXT_MAX_BEHIND)
		return refuse_op(err, i, "no such address", op->b > 1 ? op->b : op->c);
	return 0;
}

static int check_operands(const struct xk_op *op, int i, const struct xk_ops_limits *limits,
			  struct xk_ops_error *err)
{
	switch (op->code) {
	case XK_OP_IV:
		if (op->imm < 0 || op->imm >= limits->nr_ivs)
			return refuse_op(err, i, "no such value", op->imm);
		break;
	case XK_OP_REG:
		if (op->a > 15 || op->b > 1 ||
		    (op->b && (op->width != 1 || op->a > 3)))
			return refuse_op(err, i, "register cannot be used", op->a);
		break;
	case XK_OP_SEXT:
		if (!width_ok(op->b) || op->b >= op->width)
			return refuse_op(err, i, "cannot extend from width", op->b);
		break;
	case XK_OP_COND:
		if (op->imm < 0 || op->imm > 15)
			return refuse_op(err, i, "no such condition", op->imm);
		break;
	case XK_OP_SET_FLAGS:
		if (!op->imm || (op->imm & ~(s64)XK_STATUS_FLAGS))
			return refuse_op(err, i, "flags cannot be set", op->imm);
		break;
	case XK_OP_SET_REG:
		/* An optimised probe does not restore the stack pointer. */
		if (op->dst > 15 || op->dst == RSP)
			return refuse_op(err, i, "register cannot be set", op->dst);
		break;
	case XK_OP_STORE:
		if (!limits->stores)
			return refuse_op(err, i, "the site declares no store", 0);
		break;
	case XK_OP_TEXT:
	case XK_OP_PER_CPU:
		/* Parts of an address are never needed. */
		if (op->width != 8)
			return refuse_op(err, i, "an address is 8 bytes wide, not", op->width);
		if (op->code == XK_OP_TEXT)
			return check_text(op, i, limits->text_len, err);
		break;
	}
	return 0;
}

int xk_ops_check(const struct xk_op *ops, unsigned int nr_ops,
		 const struct xk_ops_limits *limits, struct xk_ops_error *err)
{
	bool effect = false;
	u32 written = 0;
	int i, k, ret;

	if (!nr_ops || nr_ops > XK_MAX_OPS)
		return refuse_op(err, -1, "wrong number of operations", nr_ops);
	if (limits->nr_ivs > XK_MAX_IVS)
		return refuse_op(err, -1, "too many values", limits->nr_ivs);

	for (i = 0; i < nr_ops; i++) {
		const struct xk_op *op = &ops[i];
		const u8 operands[3] = { op->a, op->b, op->c };
		unsigned int reads;

		if (op->code < XK_OP_IV || op->code > XK_OP_PER_CPU)
			return refuse_op(err, i, "unknown code", op->code);
		if (!width_ok(op->width))
			return refuse_op(err, i, "width is not 1, 2, 4 or 8", op->width);

		reads = xk_op_reads(op->code);
		for (k = 0; k < 3; k++) {
			if (!(reads & (1U << k)))
				continue;
			if (operands[k] >= XK_MAX_TEMPS ||
			    !(written & (1U << operands[k])))
				return refuse_op(err, i, "temporary is not written yet",
						 operands[k]);
		}
		ret = check_operands(op, i, limits, err);
		if (ret)
			return ret;

		switch (op->code) {
		case XK_OP_SET_REG:
		case XK_OP_SET_FLAGS:
		case XK_OP_STORE:
			effect = true;
			break;
		default:
			if (op->dst >= XK_MAX_TEMPS)
				return refuse_op(err, i, "no such temporary", op->dst);
			written |= 1U << op->dst;
		}
	}
	if (!effect)
		return refuse_op(err, -1, "nothing is changed", 0);
	return 0;
}

bool xk_iv_ok(const struct xk_iv *iv)
{
	switch (iv->form) {
	case XK_FORM_LINEAR:
	case XK_FORM_LOG2:
	case XK_FORM_INVERSE:
		return !iv->by;
	case XK_FORM_QUOTIENT:
		return iv->by > 0;
	case XK_FORM_POWER:
		return iv->by >= 0 && iv->by < 64;
	default:
		return false;
	}
}

u64 xk_iv_apply(const struct xk_iv *iv, s64 v)
{
	const u64 a = iv->a, b = iv->b, sum = a * (u64)v + b;
	s64 quotient;

	switch (iv->form) {
	case XK_FORM_QUOTIENT:
		quotient = (s64)sum / iv->by;
		return (s64)sum % iv->by < 0 ? quotient - 1 : quotient;
	case XK_FORM_POWER:
		if (v < 0 || v > 62)
			return b;
		return ((s64)(a << v) >> iv->by) + b;
	case XK_FORM_LOG2:
		return v < 1 ? b : a * (63 - __builtin_clzll(v)) + b;
	case XK_FORM_INVERSE:
		return v < 1 ? b : a / (u64)v + b;
	default:
		return sum;
	}
}

void xk_ops_link(struct xk_op *ops, unsigned int nr_ops, const u8 *text, u64 address)
{
	unsigned int i;
	s32 field;

	for (i = 0; i < nr_ops; i++) {
		struct xk_op *op = &ops[i];
		u64 behind;

		if (op->code != XK_OP_TEXT)
			continue;
		memcpy(&field, text + op->imm, sizeof(field));
		behind = op->b ? address + op->imm + XK_TEXT_FIELD + op->c : 0;
		*op = (struct xk_op) {
			.code = XK_OP_IMM, .width = op->width, .dst = op->dst,
			.imm = (s64)(behind + (u64)(s64)field),
		};
	}
}

static u64 notrace sign_extend(u64 value, u8 width)
{
	unsigned int shift = 64 - 8 * width;

	return (u64)((s64)(value << shift) >> shift);
}

/* ZF, SF and PF: they depend only on the result. */
static u64 notrace result_flags(u64 result, u8 width)
{
	u8 low = result;
	u64 flags = 0;

	if (!result)
		flags |= EFLAGS_ZF;
	if (result >> (8 * width - 1))
		flags |= EFLAGS_SF;
	low ^= low >> 4;
	low ^= low >> 2;
	low ^= low >> 1;
	if (!(low & 1))
		flags |= EFLAGS_PF;
	return flags;
}

static u64 notrace add_flags(u64 a, u64 b, u8 width)
{
	u64 result = (a + b) & xk_width_mask(width);
	u64 flags = result_flags(result, width);

	if (result < a)
		flags |= EFLAGS_CF;
	if ((a ^ b ^ result) & 0x10)
		flags |= EFLAGS_AF;
	if ((~(a ^ b) & (a ^ result)) >> (8 * width - 1) & 1)
		flags |= EFLAGS_OF;
	return flags;
}

static u64 notrace sub_flags(u64 a, u64 b, u8 width)
{
	u64 result = (a - b) & xk_width_mask(width);
	u64 flags = result_flags(result, width);

	if (a < b)
		flags |= EFLAGS_CF;
	if ((a ^ b ^ result) & 0x10)
		flags |= EFLAGS_AF;
	if (((a ^ b) & (a ^ result)) >> (8 * width - 1) & 1)
		flags |= EFLAGS_OF;
	return flags;
}

/* Whether condition code `cond` (the low nibble of jcc) holds in `flags`. */
static bool notrace condition(u64 flags, unsigned int cond)
{
	bool cf = flags & EFLAGS_CF;
	bool zf = flags & EFLAGS_ZF;
	bool less = !(flags & EFLAGS_SF) != !(flags & EFLAGS_OF);
	bool holds;

	switch (cond >> 1) {
	case 0:
		holds = flags & EFLAGS_OF;
		break;
	case 1:
		holds = cf;
		break;
	case 2:
		holds = zf;
		break;
	case 3:
		holds = cf || zf;
		break;
	case 4:
		holds = flags & EFLAGS_SF;
		break;
	case 5:
		holds = flags & EFLAGS_PF;
		break;
	case 6:
		holds = less;
		break;
	default:
		holds = less || zf;
		break;
	}
	return holds ^ (cond & 1);
}

u64 notrace xk_op_compute(u8 code, u8 width, u8 from, s64 imm, u64 a, u64 b, u64 c)
{
	const u64 mask = xk_width_mask(width);
	const unsigned int bits = 8 * width;
	/*
	 * Operands are read at the width of the operation. The condition of a select and flags are
	 * read as 64 bits.
	 */
	const u64 x = a & mask;
	const u64 y = b & mask;

	switch (code) {
	case XK_OP_ADD:
		return (x + y) & mask;
	case XK_OP_SUB:
		return (x - y) & mask;
	case XK_OP_MUL:
		return (x * y) & mask;
	case XK_OP_AND:
		return x & y;
	case XK_OP_OR:
		return x | y;
	case XK_OP_XOR:
		return x ^ y;
	case XK_OP_SHL:
		return y >= bits ? 0 : (x << y) & mask;
	case XK_OP_SHR:
		return y >= bits ? 0 : x >> y;
	case XK_OP_SAR:
		return (u64)((s64)sign_extend(x, width) >>
			     (y >= bits ? bits - 1 : y)) & mask;
	case XK_OP_NOT:
		return ~x & mask;
	case XK_OP_NEG:
		return -x & mask;
	case XK_OP_SEXT:
		return sign_extend(a, from) & mask;
	case XK_OP_EQ:
		return x == y;
	case XK_OP_ULT:
		return x < y;
	case XK_OP_SLT:
		return (s64)sign_extend(x, width) < (s64)sign_extend(y, width);
	case XK_OP_SELECT:
		return (a ? b : c) & mask;
	case XK_OP_FLAGS_ADD:
		return add_flags(x, y, width);
	case XK_OP_FLAGS_SUB:
		return sub_flags(x, y, width);
	case XK_OP_FLAGS_LOGIC:
		return result_flags(x, width);
	case XK_OP_COND:
		return condition(a, imm);
	default:
		return 0;
	}
}

static void notrace set_register(struct pt_regs *regs, u8 number, u8 width, u64 value)
{
	u64 *reg = xk_reg(regs, number);
	u64 mask = xk_width_mask(width);

	if (width >= 4)
		*reg = value & mask;
	else
		*reg = (*reg & ~mask) | (value & mask);
}

int notrace xk_ops_run(const struct xk_op *ops, unsigned int nr_ops, const u64 *ivs,
		       struct pt_regs *regs)
{
	struct pt_regs state = *regs;
	u64 t[XK_MAX_TEMPS];
	unsigned int i;
	u64 value;

	for (i = 0; i < nr_ops; i++) {
		const struct xk_op *op = &ops[i];
		const u64 mask = xk_width_mask(op->width);
		const unsigned int reads = xk_op_reads(op->code);
		const u64 a = reads & 1 ? t[op->a] : 0;
		const u64 b = reads & 2 ? t[op->b] : 0;
		const u64 c = reads & 4 ? t[op->c] : 0;

		switch (op->code) {
		case XK_OP_IV:
			t[op->dst] = ivs[op->imm] & mask;
			break;
		case XK_OP_IMM:
			t[op->dst] = op->imm & mask;
			break;
		case XK_OP_REG:
			t[op->dst] = (*xk_reg(&state, op->a) >> (8 * op->b)) & mask;
			break;
		case XK_OP_FLAGS:
			t[op->dst] = state.flags & XK_STATUS_FLAGS;
			break;
		case XK_OP_PER_CPU:
			t[op->dst] = xk_per_cpu_base();
			break;
		case XK_OP_LOAD:
			if (xk_memory_load(a + op->imm, op->width, &value))
				return -EFAULT;
			t[op->dst] = value;
			break;
		case XK_OP_STORE:
			if (xk_memory_store(a + op->imm, op->width, b))
				return -EFAULT;
			break;
		case XK_OP_SET_REG:
			set_register(&state, op->dst, op->width, a);
			break;
		case XK_OP_SET_FLAGS:
			state.flags = (state.flags & ~op->imm) | (a & op->imm);
			break;
		default:
			t[op->dst] = xk_op_compute(op->code, op->width, op->b,
						   op->imm, a, b, c);
		}
	}
	*regs = state;
	return 0;
}

#ifdef __KERNEL__
/* Handlers call these: see backend/kprobe. */
NOKPROBE_SYMBOL(xk_op_reads);
NOKPROBE_SYMBOL(xk_op_compute);
NOKPROBE_SYMBOL(xk_ops_run);
#endif
