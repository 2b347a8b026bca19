// SPDX-License-Identifier: GPL-2.0-only
/* Emits instructions for one operation. Loads and stores use %rax and %rcx, shifts use %rcx. */
#include "ops/native_gen.h"

#define CALL 0xe8
#define JC 0x0f82
#define JB8 0x72

static void emit_binary(struct xk_generator *g, const struct xk_op *op, unsigned int now,
			u16 opcode)
{
	u8 width = xk_at_least_4(op->width), to;
	struct xk_operand b;

	/* b first, because it may be the same result. */
	b = xk_gen_operand(g, op->b, op->width);
	to = xk_gen_change(g, op->a, op->width, now);
	if (op->a == op->b)
		b = xk_in(to);
	xk_gen_emit(g, width, opcode, to, b);
	if (op->width < 4)
		xk_gen_cut(g, to, to, op->width);
	xk_gen_set(g, now, to);
}

static void emit_unary(struct xk_generator *g, const struct xk_op *op, unsigned int now, u8 group)
{
	u8 to = xk_gen_change(g, op->a, op->width, now);

	xk_gen_emit(g, xk_at_least_4(op->width), XK_GROUP_UNARY, group, xk_in(to));
	if (op->width < 4)
		xk_gen_cut(g, to, to, op->width);
	xk_gen_set(g, now, to);
}

static void emit_extended(struct xk_generator *g, u8 to, u8 from_width)
{
	if (from_width == 8)
		return;
	xk_gen_emit(g, 8, from_width == 1 ? XK_MOVSX1 : from_width == 2 ? XK_MOVSX2 : XK_MOVSX4,
		    to, xk_in(to));
}

static void emit_sext(struct xk_generator *g, const struct xk_op *op, unsigned int now)
{
	u8 to = xk_gen_change(g, op->a, op->b, now);

	emit_extended(g, to, op->b);
	xk_gen_cut(g, to, to, op->width);
	xk_gen_set(g, now, to);
}

/* Jumps over the next `len` bytes if the shift amount is less than 64. */
static void emit_unless_wide(struct xk_generator *g, u8 condition, u8 len)
{
	const u8 jump[2] = { condition, len };

	xk_gen_emit_imm32(g, 8, XK_GROUP_IMM32, XK_EXT_CMP, xk_in(XK_RCX), 64);
	xk_emit(g->out, jump, sizeof(jump));
}

/* Shifts 64 bits, which is correct for every amount below 64. Then truncates. */
static void emit_shift(struct xk_generator *g, const struct xk_op *op, unsigned int now)
{
	bool arithmetic = op->code == XK_OP_SAR;
	u8 group = op->code == XK_OP_SHL ? XK_EXT_SHL : arithmetic ? XK_EXT_SAR : XK_EXT_SHR;
	struct xk_operand amount = xk_gen_operand(g, op->b, op->width);
	u8 to;

	if (amount.kind == XK_IN_REG)
		xk_gen_cut(g, XK_RCX, amount.reg, op->width);
	else
		xk_gen_emit(g, xk_at_least_4(op->width), XK_MOV, XK_RCX, amount);
	/* A constant is loaded with at least 4 bytes. */
	if (amount.kind != XK_IN_REG && op->width < 4)
		xk_gen_cut(g, XK_RCX, XK_RCX, op->width);
	to = xk_gen_change(g, op->a, op->width, now);
	if (arithmetic)
		emit_extended(g, to, op->width);
	else
		xk_gen_cut(g, to, to, op->width);
	if (arithmetic) {
		static const u8 most[] = { 0xb9, 63, 0, 0, 0 };	/* mov $63, %ecx */

		emit_unless_wide(g, JB8, sizeof(most));
		xk_emit(g->out, most, sizeof(most));
		xk_gen_emit(g, 8, XK_GROUP_SHIFT, group, xk_in(to));
	} else {
		xk_gen_emit(g, 8, XK_GROUP_SHIFT, group, xk_in(to));
		emit_unless_wide(g, JB8, 3);
		xk_gen_emit(g, 4, XK_XOR, to, xk_in(to));
	}
	if (op->code != XK_OP_SHR)
		xk_gen_cut(g, to, to, op->width);
	xk_gen_set(g, now, to);
}

/* cmp b, a at the width of the operation. */
static void emit_compare(struct xk_generator *g, const struct xk_op *op)
{
	u8 a = xk_gen_get(g, op->a, op->width);

	xk_gen_emit(g, op->width, XK_CMP, a, xk_gen_operand(g, op->b, op->width));
}

static void emit_truth(struct xk_generator *g, unsigned int now, u16 setcc)
{
	u8 to = xk_gen_take(g);

	xk_gen_emit(g, 1, setcc, 0, xk_in(to));
	xk_gen_emit(g, 4, XK_MOVZX1, to, xk_in(to));
	xk_gen_set(g, now, to);
}

static void emit_select(struct xk_generator *g, const struct xk_op *op, unsigned int now)
{
	u8 a = xk_gen_get(g, op->a, 8);
	struct xk_operand b = xk_gen_operand(g, op->b, op->width);
	u8 to = xk_gen_change(g, op->c, op->width, now);

	xk_gen_emit(g, 8, XK_TEST, a, xk_in(a));
	xk_gen_emit(g, 8, XK_CMOVNZ, to, b);
	xk_gen_cut(g, to, to, op->width);
	xk_gen_set(g, now, to);
}

/* The result is the flags that the previous instruction set. */
static void emit_flags_result(struct xk_generator *g, unsigned int now, u8 to)
{
	static const u8 pushfq = 0x9c;

	xk_emit(g->out, &pushfq, 1);
	xk_emit_pop(g->out, to);
	xk_gen_set(g, now, to);
	g->results[now].flags = true;
}

static void emit_flags(struct xk_generator *g, const struct xk_op *op, unsigned int now)
{
	struct xk_operand b;
	u8 to;

	switch (op->code) {
	case XK_OP_FLAGS:
		to = xk_gen_take(g);
		xk_gen_emit(g, 8, XK_MOV, to, xk_gen_flags(g));
		xk_gen_set(g, now, to);
		g->results[now].flags = true;
		return;
	case XK_OP_FLAGS_ADD:
		b = xk_gen_operand(g, op->b, op->width);
		to = xk_gen_change(g, op->a, op->width, now);
		xk_gen_emit(g, op->width, XK_ADD, to, op->a == op->b ? xk_in(to) : b);
		break;
	case XK_OP_FLAGS_SUB:
		emit_compare(g, op);
		to = xk_gen_take(g);
		break;
	default:
		to = xk_gen_get(g, op->a, op->width);
		xk_gen_emit(g, op->width, XK_TEST, to, xk_in(to));
		to = xk_gen_take(g);
	}
	emit_flags_result(g, now, to);
	if (op->code == XK_OP_FLAGS_LOGIC) {
		/* test leaves AF undefined; the operation defines it as 0. */
		xk_gen_and(g, to, XK_STATUS_FLAGS & ~0x10);
		g->results[now].flags = false;
	}
}

/*
 * Six of the eight pairs of condition codes test whether one of some flags is set. The other two do
 * the same after the overflow flag is xored into the sign flag.
 */
static void emit_condition(struct xk_generator *g, const struct xk_op *op, unsigned int now)
{
	static const struct {
		bool fold;
		u16 mask;
	} conditions[8] = {
		{ false, 0x800 }, { false, 0x01 }, { false, 0x40 }, { false, 0x41 },
		{ false, 0x80 }, { false, 0x04 }, { true, 0x80 }, { true, 0xc0 },
	};
	static const u8 four = 4;
	bool fold = conditions[op->imm >> 1].fold;
	u8 from, to;

	from = xk_gen_get_flags(g, op->a);
	to = xk_gen_take(g);
	xk_gen_emit(g, 4, XK_MOV, to, xk_in(from));
	if (fold) {
		xk_gen_emit(g, 4, XK_GROUP_SHIFT8, XK_EXT_SHR, xk_in(to));
		xk_emit(g->out, &four, 1);
		xk_gen_and(g, to, 0x80);
		xk_gen_emit(g, 4, XK_XOR, to, xk_in(from));
	}
	xk_gen_emit_imm32(g, 4, XK_GROUP_UNARY, XK_EXT_TEST, xk_in(to),
			  conditions[op->imm >> 1].mask);
	xk_gen_emit(g, 1, op->imm & 1 ? XK_SETZ : XK_SETNZ, 0, xk_in(to));
	xk_gen_emit(g, 4, XK_MOVZX1, to, xk_in(to));
	xk_gen_set(g, now, to);
}

static void emit_register(struct xk_generator *g, const struct xk_op *op, unsigned int now)
{
	struct xk_operand at = xk_gen_register(g, op->a);
	struct xk_result *result = &g->results[now];
	static const u8 eight = 8;

	if (op->a == XK_RSP && !g->place->function) {
		unsigned int pushed = hweight16(g->code->saved) + g->code->flags;

		xk_gen_set(g, now, xk_gen_take(g));
		xk_gen_emit(g, 8, XK_LEA, result->reg, xk_at(XK_RSP, pushed * sizeof(u64)));
		result->valid = op->width;
		return;
	}
	if (at.kind == XK_IN_REG && !op->b) {
		result->reg = op->a;
		result->valid = op->width;
		result->scratch = false;
		return;
	}
	xk_gen_set(g, now, xk_gen_take(g));
	xk_gen_emit(g, 8, XK_MOV, result->reg, at);
	result->valid = op->width;
	if (!op->b)
		return;
	xk_gen_emit(g, 4, XK_GROUP_SHIFT8, XK_EXT_SHR, xk_in(result->reg));
	xk_emit(g->out, &eight, 1);
}

static void emit_access(struct xk_generator *g, const u8 *function, bool faults)
{
	xk_emit_branch(g->out, CALL, (unsigned long)function);
	if (!faults)
		return;
	if (g->code->nr_faults == ARRAY_SIZE(g->code->faults)) {
		g->failed = true;
		return;
	}
	g->code->faults[g->code->nr_faults++] = xk_emit_forward(g->out, JC);
}

/* The result is in %rax. It is moved if a later access needs %rax. */
static void keep_rax(struct xk_generator *g, unsigned int now)
{
	u8 to = XK_RAX;

	if (--g->accesses) {
		to = xk_gen_take(g);
		xk_gen_emit(g, 8, XK_MOV, to, xk_in(XK_RAX));
	}
	xk_gen_set(g, now, to);
}

static void emit_address(struct xk_generator *g, const struct xk_op *op)
{
	s32 displacement = op->imm;

	if (displacement != op->imm)
		g->failed = true;
	xk_gen_emit(g, 8, XK_LEA, XK_RAX, xk_at(xk_gen_get(g, op->a, 8), displacement));
}

static void emit_load(struct xk_generator *g, const struct xk_op *op, unsigned int now)
{
	emit_address(g, op);
	emit_access(g, op->width == 1 ? xk_native_load1 : op->width == 2 ? xk_native_load2 :
		       op->width == 4 ? xk_native_load4 : xk_native_load8, true);
	keep_rax(g, now);
}

static void emit_store(struct xk_generator *g, const struct xk_op *op)
{
	struct xk_operand value;

	emit_address(g, op);
	value = xk_gen_operand(g, op->b, op->width);
	xk_gen_emit(g, 8, XK_MOV, XK_RCX, value);
	emit_access(g, op->width == 1 ? xk_native_store1 : op->width == 2 ? xk_native_store2 :
		       op->width == 4 ? xk_native_store4 : xk_native_store8, true);
	g->accesses--;
}

static void emit_per_cpu(struct xk_generator *g, unsigned int now)
{
	/* A thread that is switched out in a stub may continue on another CPU. */
	if (!g->place->function) {
		g->failed = true;
		return;
	}
	emit_access(g, xk_native_per_cpu, false);
	keep_rax(g, now);
}

void xk_gen_operation(struct xk_generator *g, unsigned int now)
{
	const struct xk_op *op = &g->native->ops[now];

	switch (op->code) {
	case XK_OP_REG:
		return emit_register(g, op, now);
	case XK_OP_LOAD:
		return emit_load(g, op, now);
	case XK_OP_STORE:
		return emit_store(g, op);
	case XK_OP_PER_CPU:
		return emit_per_cpu(g, now);
	case XK_OP_ADD:
		return emit_binary(g, op, now, XK_ADD);
	case XK_OP_SUB:
		return emit_binary(g, op, now, XK_SUB);
	case XK_OP_MUL:
		return emit_binary(g, op, now, XK_IMUL);
	case XK_OP_AND:
		return emit_binary(g, op, now, XK_AND);
	case XK_OP_OR:
		return emit_binary(g, op, now, XK_OR);
	case XK_OP_XOR:
		return emit_binary(g, op, now, XK_XOR);
	case XK_OP_SHL:
	case XK_OP_SHR:
	case XK_OP_SAR:
		return emit_shift(g, op, now);
	case XK_OP_NOT:
		return emit_unary(g, op, now, XK_EXT_NOT);
	case XK_OP_NEG:
		return emit_unary(g, op, now, XK_EXT_NEG);
	case XK_OP_SEXT:
		return emit_sext(g, op, now);
	case XK_OP_EQ:
		emit_compare(g, op);
		return emit_truth(g, now, XK_SETZ);
	case XK_OP_ULT:
		emit_compare(g, op);
		return emit_truth(g, now, XK_SETB);
	case XK_OP_SLT:
		emit_compare(g, op);
		return emit_truth(g, now, XK_SETL);
	case XK_OP_SELECT:
		return emit_select(g, op, now);
	case XK_OP_FLAGS:
	case XK_OP_FLAGS_ADD:
	case XK_OP_FLAGS_SUB:
	case XK_OP_FLAGS_LOGIC:
		return emit_flags(g, op, now);
	case XK_OP_COND:
		return emit_condition(g, op, now);
	default:
		g->failed = true;
	}
}
