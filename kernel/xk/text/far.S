/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls an unexported kernel function by address. With indirect branch tracking, the kernel seals
 * functions that it never calls through a pointer: they do not begin with endbr64, and an indirect
 * call of one faults. A return is not tracked, and it uses the return thunk like every other
 * return. Function types are not checked here: internal.c compares them at compile time, and
 * requires.h refuses kernels that check them at run time.
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
/* It does not return to its caller. */
STACK_FRAME_NON_STANDARD xk_far
