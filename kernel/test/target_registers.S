/* SPDX-License-Identifier: GPL-2.0-only */
/* A function that notices if a probe changes anything. */
#include <linux/linkage.h>
#include <linux/objtool.h>

#include "target_function.h"

/* CF, PF, AF, ZF, SF, OF and DF: all that the kernel's code may have set */
#define FLAGS 0xcd5
#define DIRECTION 0x400

/* What register number `n` holds at the place that is probed. */
#define PATTERN(n) (0x0101010101010101 * (n + 1))

.macro HAS register:req n:req
	movabsq	$PATTERN(\n), %rax
	cmpq	%rax, \register
	jne	1f
.endm

	.bss
	.balign 8
SYM_DATA_LOCAL(stack_pointer, .quad 0)

	.text

/*
 * int xk_target_registers(void): 32, unless a register or a flag changes at the instruction that
 * sets rax. There, rcx to r15 hold the numbers 1 to 15 in each byte, plus 1; rax holds 1.
 */
FUNCTION(xk_target_registers)
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rsp, stack_pointer(%rip)
	movabsq	$PATTERN(0), %rax
	movabsq	$PATTERN(1), %rcx
	movabsq	$PATTERN(2), %rdx
	movabsq	$PATTERN(3), %rbx
	movabsq	$PATTERN(5), %rbp
	movabsq	$PATTERN(6), %rsi
	movabsq	$PATTERN(7), %rdi
	movabsq	$PATTERN(8), %r8
	movabsq	$PATTERN(9), %r9
	movabsq	$PATTERN(10), %r10
	movabsq	$PATTERN(11), %r11
	movabsq	$PATTERN(12), %r12
	movabsq	$PATTERN(13), %r13
	movabsq	$PATTERN(14), %r14
	movabsq	$PATTERN(15), %r15
	pushfq
	orq	$FLAGS, (%rsp)
	popfq
	movabsq	$PATTERN(16), %rax	/* +0xb1, probed */
	pushfq
	pushfq
	andq	$~DIRECTION, (%rsp)
	popfq
	pushq	%rax
	movq	8(%rsp), %rax
	andl	$FLAGS, %eax
	cmpl	$FLAGS, %eax
	popq	%rax
	jne	2f
	cmpq	%rcx, %rax
	je	2f
	popq	%rax
	HAS	%rcx 1
	HAS	%rdx 2
	HAS	%rbx 3
	HAS	%rbp 5
	HAS	%rsi 6
	HAS	%rdi 7
	HAS	%r8 8
	HAS	%r9 9
	HAS	%r10 10
	HAS	%r11 11
	HAS	%r12 12
	HAS	%r13 13
	HAS	%r14 14
	HAS	%r15 15
	cmpq	%rsp, stack_pointer(%rip)
	jne	1f
	movl	$32, %eax
	jmp	3f
2:	popq	%rax
1:	xorl	%eax, %eax
3:	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	RET
SYM_FUNC_END(xk_target_registers)
