/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The generator of native code for one program: see native_code.c. Every result is in a register: a
 * scratch register, or the register of the site that contains it already, if the program does not
 * change that register.
 */
#ifndef _XK_NATIVE_GEN_H
#define _XK_NATIVE_GEN_H

#include "ops/native.h"

/* Extended opcodes: they select the operation of an XK_GROUP_*. */
enum { XK_EXT_TEST = 0, XK_EXT_AND = 4, XK_EXT_NOT = 2, XK_EXT_NEG = 3 };
enum { XK_EXT_CMP = 7, XK_EXT_SHL = 4, XK_EXT_SHR = 5, XK_EXT_SAR = 7 };

/* No register. */
#define XK_NOWHERE 0xff

/*
 * Registers and flags are set last, at this time. A result that several of them read is needed
 * until later.
 */
#define XK_AT_END XK_MAX_OPS

/* The place of a result. */
struct xk_result {
	u8 reg;			/* or XK_NOWHERE */
	u8 valid;		/* number of valid low bytes; 8: all, zero-extended */
	bool scratch;		/* only this result uses the register */
	bool flags;		/* only its status flags are valid */
	u8 last;		/* the last operation that reads it */
};

struct xk_generator {
	struct xk_emitter *out;
	const struct xk_native *native;
	const struct xk_native_place *place;
	struct xk_native_code *code;
	u16 free;		/* unused registers */
	u16 reads;		/* registers of the site */
	u16 sets;
	u8 accesses;		/* accesses to memory still to be emitted */
	u8 base;		/* register with the pointer to constants, in a stub */
	bool failed;
	struct xk_result results[XK_MAX_OPS];
};

/* Whether the result of an operation follows from the value alone. */
static inline bool xk_gen_is_known(const struct xk_generator *g, u8 number)
{
	return g->native->known & (1ULL << number);
}

/* 32-bit operations clear the upper half. Narrower ones are done with 32 bits, and truncated. */
static inline u8 xk_at_least_4(u8 width)
{
	return width == 8 ? 8 : 4;
}

/* native_registers.c. Returns an unused register; the generator fails if there is none. */
u8 xk_gen_take(struct xk_generator *g);

/* Frees the register of result `number` if operation `now` was the last to read it. */
void xk_gen_drop(struct xk_generator *g, u8 number, unsigned int now);

/* Emit an instruction, without and with a 32-bit immediate. */
void xk_gen_emit(struct xk_generator *g, u8 width, u16 opcode, u8 reg, struct xk_operand operand);
void xk_gen_emit_imm32(struct xk_generator *g, u8 width, u16 opcode, u8 group,
		       struct xk_operand operand, s32 imm);
/* Ands the low 32 bits of the register with the mask. */
void xk_gen_and(struct xk_generator *g, u8 reg, u32 mask);

/* Copies the low `width` bytes of a register, zero-extended. */
void xk_gen_cut(struct xk_generator *g, u8 to, u8 from, u8 width);

/* The places of the flags and of a register of the site, where they can be read and written. */
struct xk_operand xk_gen_flags(const struct xk_generator *g);
struct xk_operand xk_gen_register(const struct xk_generator *g, u8 reg);

/* Result `number` is in this register, which is its own, in full width. */
void xk_gen_set(struct xk_generator *g, u8 number, u8 reg);

/*
 * Returns a register with at least the low `width` bytes of result `number`. With xk_gen_change(),
 * operation `now` may change the register, which becomes its result.
 */
u8 xk_gen_get(struct xk_generator *g, u8 number, u8 width);
u8 xk_gen_change(struct xk_generator *g, u8 number, u8 width, unsigned int now);

/* The same if only the status flags of the result are used. */
u8 xk_gen_get_flags(struct xk_generator *g, u8 number);
u8 xk_gen_change_flags(struct xk_generator *g, u8 number, unsigned int now);

/* Returns result `number` as an operand, of which `width` bytes are used. */
struct xk_operand xk_gen_operand(struct xk_generator *g, u8 number, u8 width);

/* native_ops.c: emits the operation `now`, which computes a result or writes memory. */
void xk_gen_operation(struct xk_generator *g, unsigned int now);

#endif /* _XK_NATIVE_GEN_H */
