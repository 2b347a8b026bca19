/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An emitter of instructions. Every instruction has a REX prefix, so the low byte of each register
 * can be used. The operands are one register, and one register or memory location. Compiled in user
 * space, too (see user/).
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

/* The numbers of registers in instructions. */
enum xk_gpr {
	XK_RAX, XK_RCX, XK_RDX, XK_RBX, XK_RSP, XK_RBP, XK_RSI, XK_RDI,
	XK_R8, XK_R9, XK_R10, XK_R11, XK_R12, XK_R13, XK_R14, XK_R15,
	XK_GPRS,
};

/* Opcodes. If the lowest bit tells that the operand is wider than a byte, it is set here. */
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
	XK_MOVZX1 = 0x0fb6,	/* of one byte; of two bytes */
	XK_MOVZX2 = 0x0fb7,
	XK_MOVSX1 = 0x0fbe,
	XK_MOVSX2 = 0x0fbf,
	XK_MOVSX4 = 0x63,
	XK_CMOVNZ = 0x0f45,
	XK_SETB = 0x0f92,
	XK_SETZ = 0x0f94,
	XK_SETNZ = 0x0f95,
	XK_SETL = 0x0f9c,
	/* With an extended opcode instead of a register. */
	XK_GROUP_IMM32 = 0x81,
	XK_GROUP_UNARY = 0xf7,
	XK_GROUP_SHIFT = 0xd3,	/* by %cl */
	XK_GROUP_SHIFT8 = 0xc1,	/* by an immediate */
};

struct xk_emitter {
	u8 code[XK_STUB_LEN];
	unsigned int len;
	unsigned long base;	/* address at which the code will run */
	bool failed;		/* no room, or a target too far away */
};

struct xk_operand {
	enum { XK_IN_REG, XK_IN_MEMORY, XK_IN_VARIABLE } kind;
	u8 reg;			/* or base */
	s32 displacement;
	unsigned long address;	/* of a variable */
};

/* The operand is a register. */
static inline struct xk_operand xk_in(enum xk_gpr reg)
{
	return (struct xk_operand) { .kind = XK_IN_REG, .reg = reg };
}

/* The operand is in memory, at a displacement from a register. */
static inline struct xk_operand xk_at(enum xk_gpr base, s32 displacement)
{
	return (struct xk_operand) {
		.kind = XK_IN_MEMORY, .reg = base, .displacement = displacement,
	};
}

/* The operand is a variable of the module, addressed relative to rip. */
static inline struct xk_operand xk_variable(const void *variable)
{
	return (struct xk_operand) {
		.kind = XK_IN_VARIABLE, .address = (unsigned long)variable,
	};
}

/* Returns the address of the next instruction. */
static inline unsigned long xk_emit_here(const struct xk_emitter *out)
{
	return out->base + out->len;
}

/* Appends bytes. If there is no room for them, `out` becomes failed, as in all functions here. */
void xk_emit(struct xk_emitter *out, const void *bytes, unsigned int len);

/* width: 1, 2, 4 or 8 bytes. It is that of the result if the opcode implies the operand's. */
void xk_emit_insn(struct xk_emitter *out, u8 width, u16 opcode, u8 reg,
		  struct xk_operand operand);

/* Emit a push and a pop of a register. */
void xk_emit_push(struct xk_emitter *out, enum xk_gpr reg);
void xk_emit_pop(struct xk_emitter *out, enum xk_gpr reg);

/* Emits a jump or call (opcode 0xe9, 0xe8; 0x0f80 + condition) with a 32-bit displacement. */
void xk_emit_branch(struct xk_emitter *out, u16 opcode, unsigned long target);
/* Emits a jump whose target follows. Returns the position of its displacement. */
unsigned int xk_emit_forward(struct xk_emitter *out, u16 opcode);
/* Lets this jump lead to the current position; does nothing if `field` is 0. */
void xk_emit_land(struct xk_emitter *out, unsigned int field);

#endif /* _XK_EMIT_H */
