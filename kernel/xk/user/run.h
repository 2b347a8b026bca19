/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One program, run in both ways that xk.ko knows: as written (ops.c) and in
 * the form that handlers use (plan.c, shape.h). Memory is one page; it is also
 * the function that XK_OP_TEXT reads.
 */
#ifndef _XK_USER_RUN_H
#define _XK_USER_RUN_H

#include "../ops.h"
#include "../plan.h"

#define MEMORY_SIZE 4096

/* What XK_OP_PER_CPU gives. */
#define PER_CPU_BASE 0xffff888000000800ULL

struct machine {
	struct pt_regs regs;
	u64 base;		/* address of the first byte of memory */
	u8 memory[MEMORY_SIZE];
};

/* Replaces XK_OP_TEXT; to be done before the machine runs anything. */
void link_to(const struct machine *machine, struct xk_op *ops, unsigned int nr_ops);

/* 0, or -EFAULT and unchanged registers. */
int run_as_written(struct machine *machine, const struct xk_op *ops, unsigned int nr_ops,
		   const u64 *ivs);
int run_as_planned(struct machine *machine, const struct xk_op *ops, unsigned int nr_ops,
		   const u64 *ivs, unsigned int *kind);

#endif /* _XK_USER_RUN_H */
