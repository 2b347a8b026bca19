/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sixteen functions with sixteen constants of 32 each: places for more than a hundred sites, in
 * functions as long as those of the kernel.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>

#include "target_function.h"

	.text

/* int xk_target_several_N(void): 16 times 32 */
.macro several n:req
FUNCTION(xk_target_several_\n)
	xorl	%eax, %eax
	.rept	16
	movl	$32, %edx		/* +0x02, then every twelve bytes */
	leal.d32 0(%rax,%rdx), %eax	/* +0x07 */
	.endr
	movl	%eax, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_several_\n)
.endm

.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	several \n
.endr

/* int xk_target_several(void): the sum of all of them */
FUNCTION(xk_target_several)
	pushq	%rbx
	xorl	%ebx, %ebx
.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	call	xk_target_several_\n
	addl	%eax, %ebx
.endr
	movl	%ebx, %eax
	popq	%rbx
	RET
SYM_FUNC_END(xk_target_several)
