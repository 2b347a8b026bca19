/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions for detours and patches: instructions that mean something else at another address, some
 * that must not be moved, and some that hold a number. In assembly, so that a test knows every
 * byte.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/asm.h>

#include "target_function.h"

	.text

/* int xk_target_branch(int x): whether x > 32 */
FUNCTION(xk_target_branch)
	xorl	%eax, %eax
	cmpl	$32, %edi
	jbe	1f			/* +0x05 */
	movl	$1, %eax
	nop				/* +0x0c */
1:	movl	%eax, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_branch)

/*
 * int xk_target_access(const int __user *at): 32. Access to user memory is enabled at its site, as
 * in copy_from_user().
 */
FUNCTION(xk_target_access)
	stac
	movl	$32, %eax
	movl	%eax, %edx		/* +0x08 */
	movl	%edx, %eax
	nop
	clac
	RET
SYM_FUNC_END(xk_target_access)

/* int xk_target_identity(int x): x */
FUNCTION(xk_target_identity)
	movl	%edi, %eax
	movl	%eax, %edx		/* +0x02 */
	addl	$0, %edx
	RET
SYM_FUNC_END(xk_target_identity)

/* int xk_target_long_call(int x): x, by a call with a prefix */
FUNCTION(xk_target_long_call)
	xorl	%eax, %eax
	.byte	0x2e			/* +0x02: a prefix */
	call	xk_target_identity
	RET
SYM_FUNC_END(xk_target_long_call)

/* int xk_target_call(void): xk_target_identity(32) */
FUNCTION(xk_target_call)
	movl	$32, %edi
	movl	%edi, %eax		/* +0x05 */
	call	xk_target_identity
	movl	%eax, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_call)

/* int xk_target_padded(void): 32; the padding after its last instruction is never executed */
FUNCTION(xk_target_padded)
	movl	$32, %eax
	jmp	2f
1:	RET
2:	movl	%eax, %edx		/* +0x0c */
	jmp	1b
SYM_FUNC_END(xk_target_padded)
	.skip	4, 0xcc

/*
 * int xk_target_short(void): 32. Ten bytes before the push, and ten after the instruction after it,
 * could hold the relay of a short jump at that instruction.
 */
FUNCTION(xk_target_short)
	movl	$32, %eax
	movl	%eax, %edx
	addl	$0, %edx
	pushq	%rbx
	movl	%eax, %ebx		/* +0x0b */
	movl	%ebx, %ecx		/* +0x0d */
	addl	$0, %ecx
	movl	$1, %edx
	popq	%rbx
	RET
SYM_FUNC_END(xk_target_short)

/* int xk_target_into(int x): 32 */
FUNCTION(xk_target_into)
	movl	$32, %eax
	testl	%edi, %edi
	jne	1f
	movl	%eax, %edx		/* +0x09 */
1:	addl	$0, %eax
	RET
SYM_FUNC_END(xk_target_into)

/* int xk_target_careful(int *x): 32, reads *x if it can */
FUNCTION(xk_target_careful)
	movl	$32, %eax
1:	movl	(%rdi), %edx		/* +0x05 */
	addl	$0, %eax
2:	RET
SYM_FUNC_END(xk_target_careful)
	_ASM_EXTABLE(1b, 2b)

/* int xk_target_forbidden(void): 32; probes are forbidden */
FUNCTION(xk_target_forbidden)
	movl	$32, %eax
	movl	%eax, %edx		/* +0x05 */
	addl	$0, %edx
	RET
SYM_FUNC_END(xk_target_forbidden)
	_ASM_NOKPROBE(xk_target_forbidden)

/* int xk_target_displaced(int x): x + 32, without an addition */
FUNCTION(xk_target_displaced)
	leal	32(%rdi), %eax		/* field at +0x02 */
	movl	%eax, %edx		/* +0x03 */
	movl	%edx, %eax
	addl	$0, %edx
	RET
SYM_FUNC_END(xk_target_displaced)

/* int xk_target_untouchable(void): 32, in an instruction that may fault */
FUNCTION(xk_target_untouchable)
1:	movl	$32, %eax
2:	movl	%eax, %edx		/* +0x05 */
	addl	$0, %edx
	RET
SYM_FUNC_END(xk_target_untouchable)
	_ASM_EXTABLE(1b, 2b)

/* int xk_target_skip(int x): x if it is at most 32, or 0 */
FUNCTION(xk_target_skip)
	movl	%edi, %eax
	cmpl	$32, %edi
	jbe	1f			/* +0x05; its target follows a five-byte jump from there */
	andl	$0, %eax
1:	movl	%eax, %edx
	RET
SYM_FUNC_END(xk_target_skip)

/* int xk_target_pair(int x, int y): whether x > 32 or y > 32 */
FUNCTION(xk_target_pair)
	ANNOTATE_NOENDBR
	xorl	%eax, %eax
	cmpl	$32, %edi		/* +0x02 */
	jg	1f			/* +0x05; its target follows the window of the other cmpl */
	cmpl	$32, %esi		/* +0x07 */
	jle	2f			/* +0x0a */
1:	movl	$1, %eax
2:	RET
SYM_FUNC_END(xk_target_pair)
