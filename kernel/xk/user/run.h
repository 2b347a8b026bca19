/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs one program with the executors of xk.ko: the interpreter (ops.c), and native code (native.h)
 * in a function and in a stub. Memory is one page. It is also the function that XK_OP_TEXT reads.
 */
#ifndef _XK_USER_RUN_H
#define _XK_USER_RUN_H

#include "ops/ops.h"
#include "ops/native.h"

#define MEMORY_SIZE 4096

/* The result of XK_OP_PER_CPU. */
#define PER_CPU_BASE 0xffff888000000800ULL

struct machine {
	struct pt_regs regs;
	u64 base;		/* address of the first byte of memory */
	u8 memory[MEMORY_SIZE];
};

/* Replaces XK_OP_TEXT. Must be called before the machine runs a program. */
void link_to(const struct machine *machine, struct xk_op *ops, unsigned int nr_ops);

/* Interprets the program. Returns 0, or -EFAULT and unchanged registers. */
int run_as_written(struct machine *machine, const struct xk_op *ops, unsigned int nr_ops,
		   const u64 *ivs);

/* Returns the value that the stack pointer must have for code in a stub. */
u64 stack_top(void);

enum form { IN_FUNCTION, IN_STUB };

/* native.S */
extern u8 user_back[], user_faulted[];
int user_enter(u64 *registers, u64 *flags, const void *code);

/* Runs native code. Returns as run_as_written(), or 1 if there is no code in that form. */
int run_as_native(struct machine *machine, const struct xk_op *ops, unsigned int nr_ops,
		  const u64 *ivs, enum form form);

#endif /* _XK_USER_RUN_H */
