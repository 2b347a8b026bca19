// SPDX-License-Identifier: GPL-2.0-only
/*
 * Emits instructions for the remaining operations.
 *
 *	in a stub	scratch registers are pushed first, then flags; at the end both are
 *			restored, with the changes of the program
 *	a function	scratch registers are those that C may change; the site's are in
 *			the pt_regs at %rdi, constants at %rsi
 *
 * Registers and flags are set last.
 */
#include "ops/native_gen.h"

#define JMP 0xe9

/* The order in which registers are allocated in a stub, and in a function. */
static const u8 in_stub[] = {
	XK_RAX, XK_RCX, XK_RDX, XK_RSI, XK_RDI, XK_R8, XK_R9, XK_R10, XK_R11,
	XK_RBX, XK_R12, XK_R13, XK_R14, XK_R15,
};

static const u8 in_function[] = { XK_RDX, XK_R8, XK_R9, XK_R10, XK_R11, XK_RAX, XK_RCX };

static void emit_set_flags(struct xk_generator *g, const struct xk_op *op, unsigned int now)
{
	struct xk_operand at = xk_gen_flags(g);
	u8 from = xk_gen_change_flags(g, op->a, now);

	xk_gen_and(g, from, op->imm);
	xk_gen_emit_imm32(g, 8, XK_GROUP_IMM32, XK_EXT_AND, at, ~(s32)op->imm);
	xk_gen_emit(g, 8, XK_OR_TO, from, at);
	g->free |= 1U << from;
}

static void emit_set_register(struct xk_generator *g, const struct xk_op *op)
{
	struct xk_operand at = xk_gen_register(g, op->dst);
	u8 from;

	if (at.kind == XK_IN_REG) {
		struct xk_operand value = xk_gen_operand(g, op->a, op->width);

		if (value.kind != XK_IN_REG || value.reg != at.reg || op->width == 4)
			xk_gen_emit(g, op->width, XK_MOV, at.reg, value);
		return;
	}
	if (op->width != 4) {
		xk_gen_emit(g, op->width, XK_MOV_TO, xk_gen_get(g, op->a, op->width), at);
		return;
	}
	/* All eight bytes are written, so the upper ones must be zero. */
	from = xk_gen_change(g, op->a, op->width, XK_AT_END);
	xk_gen_cut(g, from, from, 4);
	xk_gen_emit(g, 8, XK_MOV_TO, from, at);
	g->free |= 1U << from;
}

static void drop_operands(struct xk_generator *g, unsigned int now)
{
	const struct xk_op *op = &g->native->ops[now];
	unsigned int reads = xk_op_reads(op->code);

	if (reads & 1)
		xk_gen_drop(g, op->a, now);
	if (reads & 2)
		xk_gen_drop(g, op->b, now);
	if (reads & 4)
		xk_gen_drop(g, op->c, now);
}

/* Flags first: the source of a register may be that register. */
static void emit_program(struct xk_generator *g)
{
	const struct xk_native *native = g->native;
	unsigned int i;

	for (i = 0; i < native->nr_ops && !g->failed; i++) {
		u8 code = native->ops[i].code;

		if (xk_gen_is_known(g, i) || code == XK_OP_SET_REG || code == XK_OP_SET_FLAGS)
			continue;
		xk_gen_operation(g, i);
		drop_operands(g, i);
		xk_gen_drop(g, i, i);
	}
	for (i = 0; i < native->nr_ops && !g->failed; i++)
		if (native->ops[i].code == XK_OP_SET_FLAGS)
			emit_set_flags(g, &native->ops[i], XK_AT_END);
	for (i = 0; i < native->nr_ops && !g->failed; i++)
		if (native->ops[i].code == XK_OP_SET_REG)
			emit_set_register(g, &native->ops[i]);
}

static void note_reader(struct xk_generator *g, u8 number, unsigned int now, bool sets)
{
	u8 *last = &g->results[number].last;

	if (sets)
		*last = *last >= XK_AT_END ? XK_AT_END + 1 : XK_AT_END;
	else if (*last < now)
		*last = now;
}

/*
 * Determines which operation reads each result last, and which registers of the site are read and
 * set.
 */
static void look_through(struct xk_generator *g)
{
	unsigned int i;

	for (i = 0; i < g->native->nr_ops; i++) {
		const struct xk_op *op = &g->native->ops[i];
		const unsigned int reads = xk_op_reads(op->code);
		bool sets = op->code == XK_OP_SET_REG || op->code == XK_OP_SET_FLAGS;

		g->results[i] = (struct xk_result) { .reg = XK_NOWHERE, .last = i };
		if (reads & 1)
			note_reader(g, op->a, i, sets);
		if (reads & 2)
			note_reader(g, op->b, i, sets);
		if (reads & 4)
			note_reader(g, op->c, i, sets);
		if (op->code == XK_OP_REG)
			g->reads |= 1U << op->a;
		if (op->code == XK_OP_SET_REG)
			g->sets |= 1U << op->dst;
		if (op->code == XK_OP_LOAD || op->code == XK_OP_STORE ||
		    op->code == XK_OP_PER_CPU)
			g->accesses++;
	}
}

/* Registers that an operation needs. */
static u16 fixed_registers(const struct xk_generator *g)
{
	u16 fixed = g->accesses ? 1U << XK_RAX : 0;
	unsigned int i;

	for (i = 0; i < g->native->nr_ops; i++) {
		switch (g->native->ops[i].code) {
		case XK_OP_SHL:
		case XK_OP_SHR:
		case XK_OP_SAR:
		case XK_OP_STORE:
			if (!xk_gen_is_known(g, i))
				fixed |= 1U << XK_RCX;
		}
	}
	return fixed;
}

/* If only one register is set, as a whole and without memory accesses, it is unused until then. */
static u16 unused_target(const struct xk_generator *g)
{
	unsigned int i, nr = 0;

	for (i = 0; i < g->native->nr_ops; i++) {
		if (g->native->ops[i].code != XK_OP_SET_REG)
			continue;
		if (g->native->ops[i].width < 4)
			return 0;
		nr++;
	}
	return nr == 1 && !g->accesses ? g->sets & ~g->reads : 0;
}

/* Allocates `nr` registers besides those that must be saved. */
static void choose_in_stub(struct xk_generator *g, unsigned int nr)
{
	u16 fixed = fixed_registers(g), target = unused_target(g) & ~fixed;
	unsigned int i;

	/* A register that is both read and set is set in its slot on the stack. */
	g->code->saved = fixed | (g->reads & g->sets);
	for (i = 0; i < ARRAY_SIZE(in_stub) && nr; i++) {
		u16 bit = 1U << in_stub[i];

		if (bit & (g->code->saved | g->reads | g->sets))
			continue;
		g->code->saved |= bit;
		nr--;
	}
	g->free = (g->code->saved | target) & ~fixed;
	g->code->flags = g->native->kind != XK_NATIVE_VALUE;
}

static void choose_in_function(struct xk_generator *g)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(in_function); i++)
		g->free |= 1U << in_function[i];
	g->free &= ~fixed_registers(g);
}

static void emit_pushes(struct xk_generator *g)
{
	static const u8 pushfq = 0x9c;
	unsigned int i;

	for (i = 0; i < XK_GPRS; i++)
		if (g->code->saved & (1U << i))
			xk_emit_push(g->out, i);
	if (g->code->flags)
		xk_emit(g->out, &pushfq, 1);
}

static void emit_failure(struct xk_emitter *out)
{
	static const u8 mov = 0xb8;
	s32 error = -EFAULT;

	xk_emit(out, &mov, 1);
	xk_emit(out, &error, sizeof(error));
}

static void emit_pops(struct xk_emitter *out, const struct xk_native_code *code)
{
	static const u8 popfq = 0x9d;
	unsigned int i;

	if (code->flags)
		xk_emit(out, &popfq, 1);
	for (i = XK_GPRS; i; i--)
		if (code->saved & (1U << (i - 1)))
			xk_emit_pop(out, i - 1);
}

static void emit_native(struct xk_generator *g)
{
	static const u8 endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };

	if (g->place->function) {
		xk_emit(g->out, endbr, sizeof(endbr));
		emit_program(g);
		xk_gen_emit(g, 4, XK_XOR, XK_RAX, xk_in(XK_RAX));
		xk_emit_branch(g->out, JMP, g->place->ret);
		return;
	}
	emit_pushes(g);
	if (g->native->nr_constants && !xk_native_reads_one(g->native)) {
		g->base = xk_gen_take(g);
		xk_gen_emit(g, 8, XK_MOV, g->base, xk_variable(g->place->constants));
	}
	emit_program(g);
	emit_pops(g->out, g->code);
}

static bool try(struct xk_generator *g, unsigned int nr)
{
	unsigned int before = g->out->len;

	memset(g->code, 0, sizeof(*g->code));
	look_through(g);
	if (g->place->function)
		choose_in_function(g);
	else
		choose_in_stub(g, nr);
	emit_native(g);
	if (!g->failed && !g->out->failed)
		return true;
	g->out->failed = false;
	g->out->len = before;
	return false;
}

/* Every register costs two instructions, so use as few as possible. */
#define MAX_TAKEN 6

bool xk_native_emit(struct xk_emitter *out, const struct xk_native *native,
		    const struct xk_native_place *place, struct xk_native_code *code)
{
	unsigned int nr;

	if (native->kind == XK_NATIVE_PLAIN || out->failed)
		return false;
	for (nr = 0; nr <= MAX_TAKEN; nr++) {
		struct xk_generator g = {
			.out = out, .native = native, .place = place, .code = code,
		};

		if (try(&g, nr))
			return true;
		if (place->function)
			return false;
	}
	return false;
}

void xk_native_emit_fault(struct xk_emitter *out, const struct xk_native_place *place,
			  const struct xk_native_code *code, unsigned long target)
{
	unsigned int i;

	if (!code->nr_faults)
		return;
	for (i = 0; i < code->nr_faults; i++)
		xk_emit_land(out, code->faults[i]);
	if (place->function) {
		emit_failure(out);
		xk_emit_branch(out, JMP, place->ret);
		return;
	}
	emit_pops(out, code);
	xk_emit_branch(out, JMP, target);
}
