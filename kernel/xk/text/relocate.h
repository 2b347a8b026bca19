/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Windows, the whole instructions that a jump replaces, and their relocation to another address. No
 * function here takes locks or sleeps. Also compiled in user space, where a test executes relocated
 * instructions beside the original ones.
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

/* A jump with a 32-bit displacement. With prefixes it can be as long as any instruction. */
#define XK_JUMP_LEN 5
/* A jump with an 8-bit displacement. */
#define XK_SHORT_JUMP_LEN 2
#define XK_MAX_WINDOW 15
#define XK_MAX_WINDOW_INSNS 15

/* Maximum length of a relocated instruction. */
#define XK_MAX_RELOCATED 15

enum xk_insn_kind {
	XK_INSN_PLAIN,		/* same bytes at any address */
	XK_INSN_RIP,		/* accesses memory relative to rip */
	XK_INSN_BRANCH,		/* jcc: continues after it, or at the target */
	XK_INSN_JUMP,		/* continues at the target */
	XK_INSN_CALL,		/* continues after it, when the callee returns */
	XK_INSN_RETURN,
	XK_INSN_PADDING,	/* after the end of the code; never executed */
};

struct xk_window_insn {
	__u8 offset;		/* in the window */
	__u8 len;
	__u8 kind;		/* enum xk_insn_kind */
	__u8 opcode;		/* of a branch: its condition, 0..15 */
	__u8 rip_field;		/* XK_INSN_RIP: offset of the displacement in the instruction */
	unsigned long target;	/* of a branch, jump or call; of XK_INSN_RIP the memory */
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

/* insn_decode(), in the kernel or in user space. */
typedef int (*xk_decode_fn)(struct insn *insn, const void *bytes, int len);

/*
 * Measures the window at `bytes`, which has `room` bytes and runs at `address`. The instruction at
 * the site is `lead` bytes after its start. Returns NULL, or why there is no window.
 */
const char *xk_window_measure(struct xk_window *window, const __u8 *bytes, unsigned int room,
			      unsigned long address, unsigned int lead, xk_decode_fn decode);

/* The same for a window of at least `least` bytes. */
const char *xk_window_measure_least(struct xk_window *window, const __u8 *bytes,
				    unsigned int room, unsigned long address, unsigned int lead,
				    unsigned int least, xk_decode_fn decode);

/*
 * Measures the instruction at `bytes` as a window, however short. It must hold a number of `size`
 * bytes at offset `field`. Returns NULL, or why it does not.
 */
const char *xk_insn_measure(struct xk_window *window, const __u8 *bytes, unsigned int room,
			    unsigned long address, unsigned int field, unsigned int size,
			    xk_decode_fn decode);

/* Decodes the instruction at `bytes`. Returns whether there is one. */
bool xk_insn_at(struct insn *insn, const __u8 *bytes, unsigned int room, xk_decode_fn decode);

/* Whether its immediate is the distance of a target, from its end. */
bool xk_is_relative(const struct insn *insn);

/* The target of a relative branch that runs at `address`; 0 for another instruction. */
unsigned long xk_target(const struct insn *insn, unsigned long address);

/*
 * Returns the length of the instruction at `bytes`, which runs at `address`; 0 if there is none.
 * `target` receives the target of a relative branch, or 0.
 */
unsigned int xk_branch(const __u8 *bytes, unsigned int room, unsigned long address,
		       xk_decode_fn decode, unsigned long *target);

/*
 * What the instruction at `bytes` is: padding, as compilers and the kernel put between functions;
 * a jump, a return or ud2, after which no code follows unless a branch leads to it.
 */
bool xk_is_padding(const __u8 *bytes, unsigned int room, xk_decode_fn decode);
bool xk_ends_flow(const __u8 *bytes, unsigned int room, xk_decode_fn decode);

/*
 * Whether it is a direct call that is longer than five bytes. Kprobes emulate a call as if it had
 * five bytes (kprobe_emulate_call() in arch/x86/kernel/kprobes/core.c), so the callee of this one
 * would return to the middle of an instruction.
 */
bool xk_is_long_call(const __u8 *bytes, unsigned int room, xk_decode_fn decode);

/*
 * Relocates instruction `index` of the window to `address`. Writes at most XK_MAX_RELOCATED bytes
 * to `to`. Returns their number, or 0 if a target is too far away.
 */
unsigned int xk_relocate(const struct xk_window *window, unsigned int index, __u8 *to,
			 unsigned long address);

/*
 * Writes a jump of `len` bytes from `address` to `target`. Returns false if that is too far away.
 */
bool xk_write_jump(__u8 *to, unsigned int len, unsigned long address, unsigned long target);

/* The same for a jump of XK_SHORT_JUMP_LEN bytes or more that reaches 127 bytes. */
bool xk_write_short_jump(__u8 *to, unsigned int len, unsigned long address, unsigned long target);

#endif /* _XK_RELOCATE_H */
