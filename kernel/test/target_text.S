/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions with a constant of 32, as a compiler might have written them. In
 * assembly, so that a test knows every byte of them.
 */
#include <linux/linkage.h>

	.text

/* SYM_FUNC_START() without the ENDBR, which the kernel would patch away. */
#define FUNCTION(name) SYM_START(name, SYM_L_GLOBAL, SYM_A_ALIGN)

/* int xk_target_value(void): 32 */
FUNCTION(xk_target_value)
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
