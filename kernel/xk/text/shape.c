// SPDX-License-Identifier: GPL-2.0-only
/*
 * Remembers what the kernel's decoder said about instructions. An instruction is a header
 * (prefixes, opcode, modrm, sib), then a displacement and immediates. The decoder learns from the
 * header alone how long they are, and takes the rest as numbers (insn_get_length() in
 * arch/x86/lib/insn.c). So it is asked once about each header. crates/xk-span/tests/shape.rs
 * compares the answers with the decoder's.
 *
 * It is asked each time about VEX prefixes, longer headers, and ud2, with which the instructions
 * begin that hypervisors emulate: their names follow (insn_get_emulate_prefix()).
 */
#include "text/shape.h"

#define UD2 0x0b		/* after 0x0f */

/* Including moffset1 and moffset2, which are the same fields. */
static unsigned int count_operands(const struct insn *insn)
{
	return insn->displacement.nbytes + insn->immediate1.nbytes + insn->immediate2.nbytes;
}

static void remember(struct xk_shapes *shapes, const struct insn *insn, const __u8 *bytes)
{
	unsigned int header_len = insn->length - count_operands(insn);
	unsigned int distance_len = 0;
	__u64 first, key;

	if (header_len > XK_MAX_HEADER || insn->vex_prefix.nbytes || insn->emulate_prefix_size ||
	    (insn->opcode.bytes[0] == 0x0f && insn->opcode.bytes[1] == UD2))
		return;
	if (xk_is_relative(insn)) {
		distance_len = insn->immediate.nbytes;
		if (distance_len != sizeof(__s8) && distance_len != sizeof(__s32))
			return;
	}
	memcpy(&first, bytes, XK_SHAPE_READ);
	key = xk_shape_key(first, header_len);
	*xk_shape_at(shapes, key) = key | (__u64)insn->length << XK_SHAPE_LEN |
				    (__u64)distance_len << XK_SHAPE_DISTANCE_LEN;
}

unsigned int xk_shape_ask(struct xk_shapes *shapes, const __u8 *bytes, unsigned int room,
			  unsigned long address, xk_decode_fn decode, unsigned long *target)
{
	struct insn insn;

	*target = 0;
	if (!xk_insn_at(&insn, bytes, room, decode))
		return 0;
	if (shapes)
		remember(shapes, &insn, bytes);
	*target = xk_target(&insn, address);
	return insn.length;
}
