// SPDX-License-Identifier: GPL-2.0-only
/*
 * Relocation of instructions. Instructions that may behave differently at another address are
 * refused: those that use rip in a way not handled here, those that the processor or the kernel
 * treats according to their address, and those unknown to the decoder.
 */
#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

#include "text/relocate.h"

#define PREFIX_CS 0x2e
#define JMP32 0xe9
#define CALL 0xe8
#define CALL_LEN 5
#define JMP8 0xeb
#define UD2 0x0b		/* after 0x0f */

static bool fits(__s64 distance)
{
	return distance == (__s32)distance;
}

static void put32(__u8 *to, __s64 value)
{
	__s32 cut = value;

	memcpy(to, &cut, sizeof(cut));
}

static bool has_prefix(const struct insn *insn, __u8 prefix)
{
	int i;

	for (i = 0; i < insn->prefixes.nbytes; i++)
		if (insn->prefixes.bytes[i] == prefix)
			return true;
	return false;
}

/* Branches relative to rip. Returns NULL if the branch can be relocated. */
static const char *classify_branch(const struct insn *insn, struct xk_window_insn *entry,
				   unsigned long address)
{
	/* AMD and Intel processors decode this differently. */
	if (has_prefix(insn, 0x66) || has_prefix(insn, 0x67))
		return "a branch with a size prefix";
	entry->target = address + insn->length + (__s64)insn->immediate.value;
	return NULL;
}

static const char *classify_group5(const struct insn *insn, struct xk_window_insn *entry)
{
	switch ((insn->modrm.bytes[0] >> 3) & 7) {
	case 0:		/* inc */
	case 1:		/* dec */
	case 6:		/* push */
		return NULL;
	default:
		return "an indirect call or jump";
	}
}

static const char *classify_two_bytes(const struct insn *insn, struct xk_window_insn *entry,
				      unsigned long address)
{
	__u8 opcode = insn->opcode.bytes[1];

	switch (opcode) {
	case 0x80 ... 0x8f:
		entry->kind = XK_INSN_BRANCH;
		entry->opcode = opcode & 15;
		return classify_branch(insn, entry, address);
	case 0x1e:
		/* endbr64, a target of indirect calls. Its other forms are no-ops. */
		return insn->modrm.bytes[0] == 0xfa ? "a target of indirect calls" : NULL;
	case UD2:
	case 0xb9:	/* ud1 */
	case 0xff:	/* ud0 */
		return "an instruction that is meant to fault";
	case 0x00:	/* system instructions */
	case 0x01:
	case 0x05 ... 0x09:
	case 0x20 ... 0x23:
	case 0x30:
	case 0x34 ... 0x37:
	case 0xaa:
		return "a system instruction";
	default:
		return NULL;
	}
}

static const char *classify_one_byte(const struct insn *insn, struct xk_window_insn *entry,
				     unsigned long address)
{
	__u8 opcode = insn->opcode.bytes[0];

	switch (opcode) {
	case 0x70 ... 0x7f:
		entry->kind = XK_INSN_BRANCH;
		entry->opcode = opcode & 15;
		return classify_branch(insn, entry, address);
	case CALL:
		entry->kind = XK_INSN_CALL;
		return classify_branch(insn, entry, address);
	case 0xe9:
	case 0xeb:
		entry->kind = XK_INSN_JUMP;
		return classify_branch(insn, entry, address);
	case 0xc3:
		entry->kind = XK_INSN_RETURN;
		return NULL;
	case 0xe0 ... 0xe3:
		return "a loop instruction, or a jump by rcx";
	case 0xff:
		return classify_group5(insn, entry);
	case 0xc6:
	case 0xc7:
		/* mov; the other forms are xabort and xbegin. */
		if ((insn->modrm.bytes[0] >> 3) & 7)
			return "an instruction of a memory transaction";
		return NULL;
	case 0xcc ... 0xcf:
	case 0xf1:
		return "a breakpoint, or another software interrupt";
	case 0xc2:
	case 0xca:
	case 0xcb:
	case 0x9a:
	case 0xea:
		return "an unusual return";
	case 0x8e:	/* mov to a segment; of ss, it blocks interrupts for one instruction */
	case 0x9d:	/* popf */
	case 0x6c ... 0x6f:
	case 0xe4 ... 0xe7:
	case 0xec ... 0xef:
	case 0xf4:
	case 0xfa:
	case 0xfb:	/* sti blocks interrupts for one instruction */
		return "a system instruction";
	default:
		return NULL;
	}
}

static const char *classify(const struct insn *insn, struct xk_window_insn *entry,
			    unsigned long address)
{
	const char *why = NULL;

	entry->kind = XK_INSN_PLAIN;
	entry->len = insn->length;
	if (insn->vex_prefix.nbytes)
		why = NULL;
	else if (insn->opcode.nbytes == 1)
		why = classify_one_byte(insn, entry, address);
	else if (insn->opcode.nbytes == 2)
		why = classify_two_bytes(insn, entry, address);
	if (why || entry->kind != XK_INSN_PLAIN)
		return why;
	/* modrm: memory relative to the end of the instruction */
	if (insn->modrm.nbytes && (insn->modrm.bytes[0] & 0xc7) == 0x05) {
		if (has_prefix(insn, 0x67))
			return "memory relative to eip";
		entry->kind = XK_INSN_RIP;
		entry->rip_field = insn_offset_displacement((struct insn *)insn);
		entry->target = address + insn->length + (__s64)insn->displacement.value;
	}
	return NULL;
}

static bool ends(const struct xk_window_insn *entry)
{
	return entry->kind == XK_INSN_JUMP || entry->kind == XK_INSN_RETURN ||
	       entry->kind == XK_INSN_PADDING;
}

/* What compilers and the kernel put between functions. */
static bool is_padding(const struct insn *insn)
{
	__u8 opcode = insn->opcode.bytes[0];

	if (insn->vex_prefix.nbytes)
		return false;
	return opcode == 0xcc || (opcode == 0x90 && !has_prefix(insn, 0xf3)) ||
	       (opcode == 0x0f && insn->opcode.bytes[1] == 0x1f);
}

/* Adds the next instruction to the window. */
static const char *extend(struct xk_window *window, const struct insn *insn)
{
	struct xk_window_insn *entry = &window->insns[window->nr];
	const struct xk_window_insn *before = window->nr ? entry - 1 : NULL;
	const char *why = NULL;

	/* A thread may return to the instruction after it. */
	if (before && before->kind == XK_INSN_CALL)
		return "the return address of a call lies in the five bytes";
	entry->offset = window->len;
	entry->len = insn->length;
	if (before && ends(before)) {
		if (!is_padding(insn))
			return "the code ends before there are five bytes";
		entry->kind = XK_INSN_PADDING;
	} else {
		why = classify(insn, entry, window->address + window->len);
	}
	window->len += insn->length;
	window->nr++;
	return why;
}

const char *xk_window_measure_least(struct xk_window *window, const __u8 *bytes,
				    unsigned int room, unsigned long address, unsigned int lead,
				    unsigned int least, xk_decode_fn decode)
{
	bool has_site = false;

	memset(window, 0, sizeof(*window));
	window->address = address;
	while (window->len < least || window->len <= lead) {
		const char *why;
		struct insn insn;

		if (window->len >= room ||
		    decode(&insn, bytes + window->len, room - window->len) < 0 ||
		    !insn.length || insn.length > room - window->len)
			return "the function ends before there are five bytes";
		if (window->len == lead) {
			window->site = window->nr;
			has_site = true;
		}
		if (window->len + insn.length > XK_MAX_WINDOW)
			return "these instructions are longer than a jump can be";
		why = extend(window, &insn);
		if (why)
			return why;
	}
	if (!has_site || window->insns[window->site].kind == XK_INSN_PADDING)
		return "no instruction of the window begins at the site";
	window->falls_through = !ends(&window->insns[window->nr - 1]);
	memcpy(window->bytes, bytes, window->len);
	return NULL;
}

const char *xk_window_measure(struct xk_window *window, const __u8 *bytes, unsigned int room,
			      unsigned long address, unsigned int lead, xk_decode_fn decode)
{
	return xk_window_measure_least(window, bytes, room, address, lead, XK_JUMP_LEN, decode);
}

/* The number is the immediate, or a displacement that is not relative to rip. */
static bool holds(struct insn *insn, const struct xk_window_insn *entry, unsigned int field,
		  unsigned int size)
{
	unsigned int immediate = insn->immediate1.nbytes + insn->immediate2.nbytes;
	__u8 opcode = insn->opcode.bytes[0];

	/*
	 * mov with an absolute address; enter has two immediates; VEX immediates select registers.
	 */
	if ((insn->opcode.nbytes == 1 && ((opcode >= 0xa0 && opcode <= 0xa3) || opcode == 0xc8)) ||
	    insn->vex_prefix.nbytes)
		return false;
	if (immediate && insn_offset_immediate(insn) == (int)field)
		return immediate == size;
	return entry->kind == XK_INSN_PLAIN && insn->displacement.nbytes == size &&
	       insn_offset_displacement(insn) == (int)field;
}

const char *xk_insn_measure(struct xk_window *window, const __u8 *bytes, unsigned int room,
			    unsigned long address, unsigned int field, unsigned int size,
			    xk_decode_fn decode)
{
	struct insn insn;
	const char *why;

	memset(window, 0, sizeof(*window));
	window->address = address;
	if (decode(&insn, bytes, room) < 0 || !insn.length || insn.length > room)
		return "no instruction is there";
	why = extend(window, &insn);
	if (why)
		return why;
	if (window->insns[0].kind != XK_INSN_PLAIN && window->insns[0].kind != XK_INSN_RIP)
		return "a branch";
	if (!holds(&insn, &window->insns[0], field, size))
		return "the instruction holds no such number";
	window->falls_through = true;
	memcpy(window->bytes, bytes, window->len);
	return NULL;
}

bool xk_insn_at(struct insn *insn, const __u8 *bytes, unsigned int room, xk_decode_fn decode)
{
	return decode(insn, bytes, room) >= 0 && insn->length && insn->length <= room;
}

bool xk_is_relative(const struct insn *insn)
{
	__u8 opcode = insn->opcode.bytes[0];
	__u8 second = insn->opcode.nbytes > 1 ? insn->opcode.bytes[1] : 0;

	if (insn->vex_prefix.nbytes)
		return false;
	return (opcode >= 0x70 && opcode <= 0x7f) || (opcode >= 0xe0 && opcode <= 0xe3) ||
	       opcode == CALL || opcode == JMP32 || opcode == JMP8 ||
	       (opcode == 0x0f && second >= 0x80 && second <= 0x8f) ||
	       /* xbegin */
	       (opcode == 0xc7 && insn->modrm.bytes[0] == 0xf8);
}

unsigned long xk_target(const struct insn *insn, unsigned long address)
{
	if (!xk_is_relative(insn))
		return 0;
	return address + insn->length + (__s64)insn->immediate.value;
}

unsigned int xk_branch(const __u8 *bytes, unsigned int room, unsigned long address,
		       xk_decode_fn decode, unsigned long *target)
{
	struct insn insn;

	*target = 0;
	if (!xk_insn_at(&insn, bytes, room, decode))
		return 0;
	*target = xk_target(&insn, address);
	return insn.length;
}

bool xk_is_padding(const __u8 *bytes, unsigned int room, xk_decode_fn decode)
{
	struct insn insn;

	return decode(&insn, bytes, room) >= 0 && is_padding(&insn);
}

bool xk_ends_flow(const __u8 *bytes, unsigned int room, xk_decode_fn decode)
{
	struct xk_window_insn entry = {};
	struct insn insn;

	if (decode(&insn, bytes, room) < 0)
		return false;
	if (insn.opcode.nbytes == 2 && insn.opcode.bytes[1] == UD2)
		return true;
	return !classify(&insn, &entry, 0) && ends(&entry);
}

bool xk_is_long_call(const __u8 *bytes, unsigned int room, xk_decode_fn decode)
{
	struct insn insn;

	return decode(&insn, bytes, room) >= 0 && !insn.vex_prefix.nbytes &&
	       insn.opcode.bytes[0] == CALL && insn.length != CALL_LEN;
}

bool xk_write_jump(__u8 *to, unsigned int len, unsigned long address, unsigned long target)
{
	__s64 distance = target - (address + len);

	memset(to, PREFIX_CS, len - XK_JUMP_LEN);
	to[len - XK_JUMP_LEN] = JMP32;
	put32(to + len - XK_JUMP_LEN + 1, distance);
	return fits(distance);
}

bool xk_write_short_jump(__u8 *to, unsigned int len, unsigned long address, unsigned long target)
{
	__s64 distance = target - (address + len);

	memset(to, PREFIX_CS, len - XK_SHORT_JUMP_LEN);
	to[len - 2] = JMP8;
	to[len - 1] = distance;
	return distance == (__s8)distance;
}

/* jcc with a 32-bit displacement */
static unsigned int relocate_branch(const struct xk_window_insn *entry, __u8 *to,
				    unsigned long address)
{
	__s64 distance = entry->target - (address + 6);

	to[0] = 0x0f;
	to[1] = 0x80 | entry->opcode;
	put32(to + 2, distance);
	return fits(distance) ? 6 : 0;
}

/* The callee returns to the original address, so stacks look as usual. */
static unsigned int relocate_call(const struct xk_window_insn *entry, __u8 *to,
				  unsigned long address, unsigned long behind)
{
	/* push sign-extends its operand. */
	if (!fits(behind))
		return 0;
	to[0] = 0x68;
	put32(to + 1, behind);
	return xk_write_jump(to + 5, XK_JUMP_LEN, address + 5, entry->target) ?
	       5 + XK_JUMP_LEN : 0;
}

unsigned int xk_relocate(const struct xk_window *window, unsigned int index, __u8 *to,
			 unsigned long address)
{
	const struct xk_window_insn *entry = &window->insns[index];
	__s64 distance;

	switch (entry->kind) {
	case XK_INSN_PADDING:
		to[0] = 0xcc;
		return 1;
	case XK_INSN_BRANCH:
		return relocate_branch(entry, to, address);
	case XK_INSN_JUMP:
		return xk_write_jump(to, XK_JUMP_LEN, address, entry->target) ? XK_JUMP_LEN : 0;
	case XK_INSN_CALL:
		return relocate_call(entry, to, address,
				     window->address + entry->offset + entry->len);
	default:
		break;
	}
	memcpy(to, window->bytes + entry->offset, entry->len);
	if (entry->kind == XK_INSN_RIP) {
		distance = entry->target - (address + entry->len);
		if (!fits(distance))
			return 0;
		put32(to + entry->rip_field, distance);
	}
	return entry->len;
}
