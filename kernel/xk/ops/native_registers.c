// SPDX-License-Identifier: GPL-2.0-only
/* Allocation of registers to results; results as operands. */
#include "ops/native_gen.h"

u8 xk_gen_take(struct xk_generator *g)
{
	unsigned int i;

	for (i = 0; i < XK_GPRS; i++) {
		if (g->free & (1U << i)) {
			g->free &= ~(1U << i);
			return i;
		}
	}
	g->failed = true;
	return XK_RAX;
}

/* Frees the register of a result if operation `now` was the last to read it. */
void xk_gen_drop(struct xk_generator *g, u8 number, unsigned int now)
{
	struct xk_result *result = &g->results[number];

	if (result->scratch && result->last <= now) {
		g->free |= 1U << result->reg;
		result->scratch = false;
		result->reg = XK_NOWHERE;
	}
}

void xk_gen_emit(struct xk_generator *g, u8 width, u16 opcode, u8 reg, struct xk_operand operand)
{
	xk_emit_insn(g->out, width, opcode, reg, operand);
}

void xk_gen_emit_imm32(struct xk_generator *g, u8 width, u16 opcode, u8 group,
		       struct xk_operand operand, s32 imm)
{
	xk_gen_emit(g, width, opcode, group, operand);
	xk_emit(g->out, &imm, sizeof(imm));
}

void xk_gen_and(struct xk_generator *g, u8 reg, u32 mask)
{
	xk_gen_emit_imm32(g, 4, XK_GROUP_IMM32, XK_EXT_AND, xk_in(reg), mask);
}

/* Copies the low `width` bytes of `from`, zero-extended. */
void xk_gen_cut(struct xk_generator *g, u8 to, u8 from, u8 width)
{
	switch (width) {
	case 1:
		xk_gen_emit(g, 4, XK_MOVZX1, to, xk_in(from));
		break;
	case 2:
		xk_gen_emit(g, 4, XK_MOVZX2, to, xk_in(from));
		break;
	case 4:
		xk_gen_emit(g, 4, XK_MOV, to, xk_in(from));
		break;
	default:
		if (to != from)
			xk_gen_emit(g, 8, XK_MOV, to, xk_in(from));
	}
}

static struct xk_operand constant(const struct xk_generator *g, u8 number)
{
	const struct xk_native *native = g->native;
	unsigned int i;

	for (i = 0; i < native->nr_constants && native->constants[i] != number; i++)
		;
	if (g->place->function)
		return xk_at(XK_RSI, i * sizeof(u64));
	if (xk_native_reads_one(native))
		return xk_variable(g->place->constant);
	return xk_at(g->base, i * sizeof(u64));
}

/* The slot of a pushed register. Later pushes are above it, the flags last. */
static s32 slot_of(const struct xk_generator *g, u8 reg)
{
	unsigned int i, above = g->code->flags;

	for (i = 0; i < XK_GPRS; i++)
		above += i > reg && g->code->saved & (1U << i);
	return above * sizeof(u64);
}

struct xk_operand xk_gen_flags(const struct xk_generator *g)
{
	return g->place->function ? xk_at(XK_RDI, offsetof(struct pt_regs, flags)) :
				    xk_at(XK_RSP, 0);
}

/* The register of the site, where it can be read and written. */
struct xk_operand xk_gen_register(const struct xk_generator *g, u8 reg)
{
	if (g->place->function)
		return xk_at(XK_RDI, xk_reg_offset[reg]);
	if (g->code->saved & (1U << reg))
		return xk_at(XK_RSP, slot_of(g, reg));
	return xk_in(reg);
}

void xk_gen_set(struct xk_generator *g, u8 number, u8 reg)
{
	g->results[number].reg = reg;
	g->results[number].valid = 8;
	g->results[number].scratch = true;
	g->results[number].flags = false;
}

/* Returns a register with at least the low `width` bytes of a result; with 8, all of it. */
u8 xk_gen_get(struct xk_generator *g, u8 number, u8 width)
{
	struct xk_result *result = &g->results[number];
	u8 to;

	if (xk_gen_is_known(g, number) && result->reg == XK_NOWHERE) {
		xk_gen_set(g, number, xk_gen_take(g));
		xk_gen_emit(g, 8, XK_MOV, result->reg, constant(g, number));
	}
	if (result->reg == XK_NOWHERE)
		g->failed = true;
	if (g->failed)
		return XK_RAX;
	if (result->flags) {
		xk_gen_and(g, result->reg, XK_STATUS_FLAGS);
		result->flags = false;
	}
	if (result->valid >= width)
		return result->reg;
	to = result->scratch ? result->reg : xk_gen_take(g);
	xk_gen_cut(g, to, result->reg, result->valid);
	xk_gen_set(g, number, to);
	return to;
}

/* As xk_gen_get(), but operation `now` may change the register, which becomes its result. */
u8 xk_gen_change(struct xk_generator *g, u8 number, u8 width, unsigned int now)
{
	struct xk_result *result = &g->results[number];
	u8 from, to;

	if (xk_gen_is_known(g, number) && result->reg == XK_NOWHERE) {
		to = xk_gen_take(g);
		xk_gen_emit(g, 8, XK_MOV, to, constant(g, number));
		return to;
	}
	from = xk_gen_get(g, number, width);
	if (result->scratch && result->last <= now) {
		result->scratch = false;
		result->reg = XK_NOWHERE;
		return from;
	}
	to = xk_gen_take(g);
	xk_gen_emit(g, 8, XK_MOV, to, xk_in(from));
	return to;
}

/* As the two above, if only the status flags are used: other bits need not be masked. */
u8 xk_gen_get_flags(struct xk_generator *g, u8 number)
{
	struct xk_result *result = &g->results[number];
	bool flags = result->flags;
	u8 reg;

	result->flags = false;
	reg = xk_gen_get(g, number, 2);
	result->flags = flags;
	return reg;
}

u8 xk_gen_change_flags(struct xk_generator *g, u8 number, unsigned int now)
{
	struct xk_result *result = &g->results[number];
	bool flags = result->flags;
	u8 reg;

	result->flags = false;
	reg = xk_gen_change(g, number, 2, now);
	result->flags = flags;
	return reg;
}

/* Returns an operand for an operation that uses `width` bytes of it. */
struct xk_operand xk_gen_operand(struct xk_generator *g, u8 number, u8 width)
{
	if (xk_gen_is_known(g, number) && g->results[number].reg == XK_NOWHERE)
		return constant(g, number);
	return xk_in(xk_gen_get(g, number, width));
}
