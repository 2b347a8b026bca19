/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What writes the code of one program: see native_code.c. A result is in a register: in a
 * scratch one, or, of what the site has in a register that nobody needs to change, in that.
 */
#ifndef _XK_NATIVE_GEN_H
#define _XK_NATIVE_GEN_H

#include "ops/native.h"

/* Numbers that say which operation of an XK_GROUP_* it is. */
enum { XK_EXT_TEST = 0, XK_EXT_AND = 4, XK_EXT_NOT = 2, XK_EXT_NEG = 3 };
enum { XK_EXT_CMP = 7, XK_EXT_SHL = 4, XK_EXT_SHR = 5, XK_EXT_SAR = 7 };

/* No such thing. */
#define XK_NOWHERE 0xff

/* When what is set is set; what several set is needed for longer. */
#define XK_AT_END XK_MAX_OPS

/* Where a result is. */
struct xk_result {
	u8 reg;			/* or XK_NOWHERE */
	u8 valid;		/* so many bytes of the register are it; 8: all, beyond them zero */
	bool scratch;		/* the register is the result's alone */
	bool flags;		/* only the status flags of it count */
	u8 last;		/* the operation that reads it last */
};

struct xk_generator {
	struct xk_emitter *out;
	const struct xk_native *native;
	const struct xk_native_place *place;
	struct xk_native_code *code;
	u16 free;		/* registers that nobody uses */
	u16 reads;		/* registers of the site */
	u16 sets;
	u8 accesses;		/* of memory that are to come */
	u8 base;		/* of several constants, in a stub */
	bool failed;
	struct xk_result results[XK_MAX_OPS];
};

static inline bool xk_gen_is_known(const struct xk_generator *g, u8 number)
{
	return g->native->known & (1ULL << number);
}

/* 32-bit operations clear the upper half; narrower ones are done at 32 bits and cut. */
static inline u8 xk_at_least_4(u8 width)
{
	return width == 8 ? 8 : 4;
}

/* native_registers.c */
u8 xk_gen_take(struct xk_generator *g);
void xk_gen_drop(struct xk_generator *g, u8 number, unsigned int now);
void xk_gen_emit(struct xk_generator *g, u8 width, u16 opcode, u8 reg, struct xk_operand operand);
void xk_gen_emit_imm32(struct xk_generator *g, u8 width, u16 opcode, u8 group,
		       struct xk_operand operand, s32 imm);
/* The register, of which 32 bits count, and the mask. */
void xk_gen_and(struct xk_generator *g, u8 reg, u32 mask);
void xk_gen_cut(struct xk_generator *g, u8 to, u8 from, u8 width);
struct xk_operand xk_gen_flags(const struct xk_generator *g);
struct xk_operand xk_gen_register(const struct xk_generator *g, u8 reg);
void xk_gen_set(struct xk_generator *g, u8 number, u8 reg);
u8 xk_gen_get(struct xk_generator *g, u8 number, u8 width);
u8 xk_gen_change(struct xk_generator *g, u8 number, u8 width, unsigned int now);
u8 xk_gen_get_flags(struct xk_generator *g, u8 number);
u8 xk_gen_change_flags(struct xk_generator *g, u8 number, unsigned int now);
struct xk_operand xk_gen_operand(struct xk_generator *g, u8 number, u8 width);

/* native_ops.c: what computes the result `now`, or writes memory. */
void xk_gen_operation(struct xk_generator *g, unsigned int now);

#endif /* _XK_NATIVE_GEN_H */
