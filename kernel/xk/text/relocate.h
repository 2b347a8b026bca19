/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Windows: the whole instructions that a jump replaces, and the same instructions
 * elsewhere. Compiled in user space too, where relocated instructions are executed
 * beside the original ones.
 */
#ifndef _XK_RELOCATE_H
#define _XK_RELOCATE_H

#ifdef __KERNEL__
#include <linux/types.h>
#include <asm/insn.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>
#include <asm/insn.h>
#endif

/* A jump with a 32-bit displacement; with prefixes it is as long as any instruction. */
#define XK_JUMP_LEN 5
#define XK_MAX_WINDOW 15
#define XK_MAX_WINDOW_INSNS 15

/* What an instruction becomes is at most this long. */
#define XK_MAX_RELOCATED 15

enum xk_insn_kind {
	XK_INSN_PLAIN,		/* may stand anywhere */
	XK_INSN_RIP,		/* with memory at a distance from itself */
	XK_INSN_BRANCH,		/* jcc: goes on behind it, or elsewhere */
	XK_INSN_JUMP,		/* goes on elsewhere */
	XK_INSN_CALL,		/* goes on behind it, after a function */
	XK_INSN_RETURN,
	XK_INSN_PADDING,	/* behind the end of the code; never executed */
};

struct xk_window_insn {
	__u8 offset;		/* in the window */
	__u8 len;
	__u8 kind;		/* enum xk_insn_kind */
	__u8 opcode;		/* of a branch: its condition, 0..15 */
	__u8 rip_field;		/* XK_INSN_RIP: where in it the distance stands */
	unsigned long target;	/* of what goes elsewhere; of XK_INSN_RIP the memory */
};

struct xk_window {
	unsigned long address;
	__u8 len;
	__u8 nr;
	__u8 site;		/* index of the instruction at the site */
	bool falls_through;
	__u8 bytes[XK_MAX_WINDOW];
	struct xk_window_insn insns[XK_MAX_WINDOW_INSNS];
};

/* insn_decode(), wherever it is. */
typedef int (*xk_decode_fn)(struct insn *insn, const void *bytes, int len);

/*
 * Measures the window at `bytes`, of which there are `room`, running at `address`,
 * that has the instruction at the site `lead` bytes further on. Returns NULL, or why
 * there is none.
 */
const char *xk_window_measure(struct xk_window *window, const __u8 *bytes, unsigned int room,
			      unsigned long address, unsigned int lead, xk_decode_fn decode);

/*
 * The one instruction at `bytes` that holds a number of `size` bytes at `field` of it, as a
 * window, however short it is. Returns NULL, or why there is none.
 */
const char *xk_insn_measure(struct xk_window *window, const __u8 *bytes, unsigned int room,
			    unsigned long address, unsigned int field, unsigned int size,
			    xk_decode_fn decode);

/*
 * The length of the instruction at `bytes`, running at `address`; 0 when it is none.
 * `target`: where it may go on beside the next one, or 0.
 */
unsigned int xk_branch(const __u8 *bytes, unsigned int room, unsigned long address,
		       xk_decode_fn decode, unsigned long *target);

/*
 * Writes what does at `address` the same as instruction `index` of the window did at
 * its place, for the XK_MAX_RELOCATED bytes at `to`. Returns its length, or 0 when
 * something is too far away.
 */
unsigned int xk_relocate(const struct xk_window *window, unsigned int index, __u8 *to,
			 unsigned long address);

/* Writes a jump of `len` bytes from `address` to `target`. False: too far away. */
bool xk_write_jump(__u8 *to, unsigned int len, unsigned long address, unsigned long target);

#endif /* _XK_RELOCATE_H */
