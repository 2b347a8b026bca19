// SPDX-License-Identifier: GPL-2.0-only
/* See emit.h. If code does not fit, or a target is too far away, everything fails. */
#include "ops/emit.h"

#define OPERAND_SIZE 0x66
#define REX 0x40
#define REX_W 8
#define REX_R 4
#define REX_B 1

/* The low three bits of these bases mean something else in a ModRM byte. */
#define NEEDS_SIB 4
#define SIB_BASE_ONLY 0x24

void xk_emit(struct xk_emitter *out, const void *bytes, unsigned int len)
{
	if (out->len + len > sizeof(out->code)) {
		out->failed = true;
		return;
	}
	memcpy(out->code + out->len, bytes, len);
	out->len += len;
}

static void emit_byte(struct xk_emitter *out, u8 byte)
{
	xk_emit(out, &byte, 1);
}

static void emit_distance(struct xk_emitter *out, unsigned long target)
{
	s64 distance = target - (xk_emit_here(out) + sizeof(s32));
	s32 field = distance;

	if (field != distance)
		out->failed = true;
	xk_emit(out, &field, sizeof(field));
}

static void emit_opcode(struct xk_emitter *out, u8 width, u16 opcode)
{
	if (opcode >> 8) {
		emit_byte(out, opcode >> 8);
		emit_byte(out, opcode);
	} else {
		emit_byte(out, width == 1 ? opcode & ~1 : opcode);
	}
}

void xk_emit_insn(struct xk_emitter *out, u8 width, u16 opcode, u8 reg,
		  struct xk_operand operand)
{
	const u8 middle = (reg & 7) << 3, low = operand.reg & 7;

	if (width == 2)
		emit_byte(out, OPERAND_SIZE);
	emit_byte(out, REX | (width == 8 ? REX_W : 0) | (reg >= 8 ? REX_R : 0) |
		  (operand.kind != XK_IN_VARIABLE && operand.reg >= 8 ? REX_B : 0));
	emit_opcode(out, width, opcode);
	switch (operand.kind) {
	case XK_IN_REG:
		emit_byte(out, 0xc0 | middle | low);
		break;
	case XK_IN_VARIABLE:
		emit_byte(out, 0x05 | middle);
		emit_distance(out, operand.address);
		break;
	case XK_IN_MEMORY:
		if (operand.displacement == (s8)operand.displacement) {
			emit_byte(out, 0x40 | middle | low);
			if (low == NEEDS_SIB)
				emit_byte(out, SIB_BASE_ONLY);
			emit_byte(out, operand.displacement);
			break;
		}
		emit_byte(out, 0x80 | middle | low);
		if (low == NEEDS_SIB)
			emit_byte(out, SIB_BASE_ONLY);
		xk_emit(out, &operand.displacement, sizeof(operand.displacement));
		break;
	}
}

void xk_emit_push(struct xk_emitter *out, enum xk_gpr reg)
{
	emit_byte(out, REX | (reg >= 8 ? REX_B : 0));
	emit_byte(out, 0x50 | (reg & 7));
}

void xk_emit_pop(struct xk_emitter *out, enum xk_gpr reg)
{
	emit_byte(out, REX | (reg >= 8 ? REX_B : 0));
	emit_byte(out, 0x58 | (reg & 7));
}

void xk_emit_branch(struct xk_emitter *out, u16 opcode, unsigned long target)
{
	if (opcode >> 8)
		emit_byte(out, opcode >> 8);
	emit_byte(out, opcode);
	emit_distance(out, target);
}

unsigned int xk_emit_forward(struct xk_emitter *out, u16 opcode)
{
	xk_emit_branch(out, opcode, xk_emit_here(out));
	return out->len - sizeof(s32);
}

void xk_emit_land(struct xk_emitter *out, unsigned int field)
{
	s32 distance = out->len - (field + sizeof(s32));

	if (field && !out->failed)
		memcpy(out->code + field, &distance, sizeof(distance));
}
