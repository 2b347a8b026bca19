/* SPDX-License-Identifier: GPL-2.0-only */
/* The function of a probed instruction, as it is in the running kernel: function.c. */
#ifndef _XK_PROBE_FUNCTION_H
#define _XK_PROBE_FUNCTION_H

#include <linux/kallsyms.h>
#include <linux/types.h>

struct module;
struct xk_shapes;
struct xk_window;

struct xk_function {
	unsigned long start;
	u32 len;			/* up to the next symbol */
	u32 capacity;			/* bytes that `text` and the bitmaps have room for */
	struct xk_shapes *shapes;	/* of the instructions of all functions that it held */
	u8 *text;			/* without the bytes of probes and of xk.ko */
	unsigned long *begins;		/* bitmap: offsets at which instructions begin */
	unsigned long *targets;		/* bitmap: offsets that its branches lead to */
	unsigned long *fixed;		/* bitmap: offsets of what kprobes never copy */
	bool is_decoded;		/* up to its end */
	const char *why_forbidden;	/* probes; by xk_allowed_function() */
	bool asked;			/* whether they are forbidden */
	char name[KSYM_SYMBOL_LEN];
	char module_name[MODULE_NAME_LEN];	/* "" for vmlinux */
};

/*
 * Reads the function that contains the address, unless `function` already holds it. Zeroed at
 * first. Returns NULL, or why it cannot be read. Under xk_lock; may sleep.
 */
const char *xk_function_read(struct xk_function *function, unsigned long address);
void xk_function_free(struct xk_function *function);

/* Whether an instruction begins at this address, which is in the function. */
bool xk_function_begins(const struct xk_function *function, unsigned long address);

/*
 * Whether a kprobe at this address, which is in the function, might become a jump: an instruction
 * begins there, and kprobes may copy all that the jump would cover.
 */
bool xk_function_jump_may_begin(const struct xk_function *function, unsigned long address);

/* Whether the instruction there is a call that kprobes emulate wrongly: see xk_is_long_call(). */
bool xk_function_is_long_call(const struct xk_function *function, unsigned long address);

/* Returns the offset of the padding after its code; its length if there is none. */
u32 xk_function_padding(const struct xk_function *function);

/* Whether a branch of the function leads into the middle of the window. */
bool xk_function_enters(const struct xk_function *function, const struct xk_window *window);

/*
 * Finds the module of the function; NULL for vmlinux. It stays as long as xk_lock is held. `coming`
 * is a module that may be in its initialisation, or NULL. Returns NULL, or why there is none.
 */
const char *xk_function_module(const struct xk_function *function, const struct module *coming,
			       const struct module **module);

#endif /* _XK_PROBE_FUNCTION_H */
