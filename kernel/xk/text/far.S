/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls a function of the kernel that it does not export, by address. Where
 * indirect branches are tracked, the kernel seals functions that it never calls
 * through a pointer: they begin with no endbr64, and an indirect call of one is a
 * fault. A return is no indirect branch: it is not tracked, and goes through the return
 * thunk like every other. Types of functions are not checked here: internal.c compares
 * them when it is compiled, and requires.h refuses kernels that check them when they run.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/nospec-branch.h>

	.text

/* unsigned long xk_far(a, b, c, d, function): function(a, b, c, d) */
SYM_FUNC_START(xk_far)
	pushq	%r8
	RET
SYM_FUNC_END(xk_far)
/* Returns to something else than its caller. */
STACK_FRAME_NON_STANDARD xk_far
