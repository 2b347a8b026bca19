/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writing instructions. Every one has a REX prefix, so that a byte is the low one of any
 * register, and its operands are one register and one register or place in memory.
 * Compiled in user space too (see user/).
 */
#ifndef _XK_EMIT_H
#define _XK_EMIT_H

#ifdef __KERNEL__
#include <linux/string.h>
#include <linux/types.h>
#else
#include "user/shim.h"
#endif

#include "base/stub_layout.h"

/* As instructions number them. */
enum xk_gpr {
	XK_RAX, XK_RCX, XK_RDX, XK_RBX, XK_RSP, XK_RBP, XK_RSI, XK_RDI,
	XK_R8, XK_R9, XK_R10, XK_R11, XK_R12, XK_R13, XK_R14, XK_R15,
	XK_GPRS,
};

/* Opcodes; those whose lowest bit says whether the operand is wider than a byte have it set. */
enum xk_opcode {
	XK_ADD = 0x03,		/* register op= operand */
	XK_OR = 0x0b,
	XK_AND = 0x23,
	XK_SUB = 0x2b,
	XK_XOR = 0x33,
	XK_CMP = 0x3b,		/* register with operand */
	XK_MOV = 0x8b,
	XK_TEST = 0x85,
	XK_OR_TO = 0x09,	/* operand op= register */
	XK_MOV_TO = 0x89,
	XK_LEA = 0x8d,
	XK_IMUL = 0x0faf,
	XK_MOVZX1 = 0x0fb6,	/* of a byte; of two */
	XK_MOVZX2 = 0x0fb7,
	XK_MOVSX1 = 0x0fbe,
	XK_MOVSX2 = 0x0fbf,
	XK_MOVSX4 = 0x63,
	XK_CMOVNZ = 0x0f45,
	XK_SETB = 0x0f92,
	XK_SETZ = 0x0f94,
	XK_SETNZ = 0x0f95,
	XK_SETL = 0x0f9c,
	/* With a number in the register's place. */
	XK_GROUP_IMM32 = 0x81,
	XK_GROUP_UNARY = 0xf7,
	XK_GROUP_SHIFT = 0xd3,	/* by %cl */
	XK_GROUP_SHIFT8 = 0xc1,	/* by an immediate */
};

struct xk_emitter {
	u8 code[XK_STUB_LEN];
	unsigned int len;
	unsigned long base;	/* where it will lie */
	bool failed;		/* no room, or too far */
};

struct xk_operand {
	enum { XK_IN_REG, XK_IN_MEMORY, XK_IN_VARIABLE } kind;
	u8 reg;			/* or base */
	s32 displacement;
	unsigned long address;	/* of a variable */
};

static inline struct xk_operand xk_in(enum xk_gpr reg)
{
	return (struct xk_operand) { .kind = XK_IN_REG, .reg = reg };
}

static inline struct xk_operand xk_at(enum xk_gpr base, s32 displacement)
{
	return (struct xk_operand) {
		.kind = XK_IN_MEMORY, .reg = base, .displacement = displacement,
	};
}

static inline struct xk_operand xk_variable(const void *variable)
{
	return (struct xk_operand) {
		.kind = XK_IN_VARIABLE, .address = (unsigned long)variable,
	};
}

static inline unsigned long xk_emit_here(const struct xk_emitter *out)
{
	return out->base + out->len;
}

void xk_emit(struct xk_emitter *out, const void *bytes, unsigned int len);

/* width: 1, 2, 4 or 8 bytes; of an opcode that names its operand's, that of the result. */
void xk_emit_insn(struct xk_emitter *out, u8 width, u16 opcode, u8 reg,
		  struct xk_operand operand);
void xk_emit_push(struct xk_emitter *out, enum xk_gpr reg);
void xk_emit_pop(struct xk_emitter *out, enum xk_gpr reg);

/* A jump or call (opcode 0xe9, 0xe8; 0x0f80 + condition) with 32 bits. */
void xk_emit_branch(struct xk_emitter *out, u16 opcode, unsigned long target);
/* One whose target follows; returns where its displacement stands. */
unsigned int xk_emit_forward(struct xk_emitter *out, u16 opcode);
/* That leads to what comes next; nothing if `field` is 0. */
void xk_emit_land(struct xk_emitter *out, unsigned int field);

#endif /* _XK_EMIT_H */
