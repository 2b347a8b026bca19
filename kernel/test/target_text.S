/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions with a constant of 32, as a compiler might generate them. In assembly, so that a test
 * knows every byte of them.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>

#include "target_function.h"

	.text

/* int xk_target_value(void): 32 */
FUNCTION(xk_target_value)
	ANNOTATE_NOENDBR
	movl	$32, %eax
	movl	%eax, %edx		/* +0x05 */
	addl	$0, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_value)
SYM_FUNC_ALIAS(xk_target_alias, xk_target_value)

/* int xk_target_twice(void): 64, the constant in two places */
FUNCTION(xk_target_twice)
	movl	$32, %eax
	movl	$32, %ecx		/* +0x05 */
	movl	%eax, %edx		/* +0x0a */
	addl	%ecx, %edx
	addl	$0, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_twice)

/* int xk_target_compare(int x): whether x > 32 */
FUNCTION(xk_target_compare)
	ANNOTATE_NOENDBR
	xorl	%eax, %eax
	cmpl	$32, %edi		/* +0x02 */
	seta	%al			/* +0x05 */
	movl	%eax, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_compare)

/* int xk_target_memory(int *x, int *other): whether *x > 32; `other` is not used */
FUNCTION(xk_target_memory)
	xorl	%eax, %eax
	cmpl	$32, (%rdi)		/* +0x02 */
	seta	%al			/* +0x05 */
	movl	%eax, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_memory)

/* void xk_target_store(int *x): *x = 32 */
FUNCTION(xk_target_store)
	movl	$32, (%rdi)
	movl	%eax, %edx		/* +0x06 */
	movl	%edx, %eax
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_store)

/* int xk_target_select(int x): x ? 32 : 64, without a branch */
FUNCTION(xk_target_select)
	cmpb	$1, %dil
	sbbl	%eax, %eax		/* +0x04 */
	andl	$32, %eax
	addl	$32, %eax
	movl	%eax, %edx		/* +0x0c */
	movl	%edx, %eax
	addl	$0, %eax
	RET
SYM_FUNC_END(xk_target_select)

/* int xk_target_global(void): 32 plus a global variable */
FUNCTION(xk_target_global)
	movl	$32, %eax
	addl	xk_target_bias(%rip), %eax	/* +0x05, field at +0x07 */
	movl	%eax, %edx		/* +0x0b */
	movl	%edx, %eax
	addl	$0, %eax
	RET
SYM_FUNC_END(xk_target_global)

/* int xk_target_above(void): whether a global variable > 32 */
FUNCTION(xk_target_above)
	xorl	%eax, %eax
	cmpl	$32, xk_target_bias(%rip)	/* +0x02, field at +0x04, one byte after it */
	seta	%al			/* +0x09 */
	movl	%eax, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_above)

/* int xk_target_array(int i): 32 plus an element of a global array */
FUNCTION(xk_target_array)
	movl	$32, %eax
	movslq	%edi, %rdi
	addl	xk_target_biases(,%rdi,4), %eax	/* +0x08, field at +0x0b */
	movl	%eax, %edx		/* +0x0f */
	movl	%edx, %eax
	addl	$0, %eax
	RET
SYM_FUNC_END(xk_target_array)

/* int xk_target_per_cpu(void): 32 plus a per-CPU variable */
FUNCTION(xk_target_per_cpu)
	movl	$32, %eax
	addl	%gs:xk_target_cpu_bias(%rip), %eax	/* +0x05, field at +0x08 */
	movl	%eax, %edx		/* +0x0c */
	movl	%edx, %eax
	addl	$0, %eax
	RET
SYM_FUNC_END(xk_target_per_cpu)

/* The first of two functions with the same name: 32 */
LOCAL_FUNCTION(xk_target_twin)
	movl	$32, %eax
	movl	%eax, %edx		/* +0x05 */
	addl	$0, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_twin)
SYM_FUNC_ALIAS(xk_target_twin_here, xk_target_twin)

/* int xk_target_many(void): 256 times 32 */
FUNCTION(xk_target_many)
	xorl	%eax, %eax
	.rept	256
	movl	$32, %edx		/* +0x02, then every seven bytes */
	addl	%edx, %eax
	.endr
	movl	%eax, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_many)
