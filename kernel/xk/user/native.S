/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions that native code calls, for a memory of one page, user_memory, at the address
 * user_base; and the entry to a stub and back. See ops/native.h.
 */
	.text

.macro CHECK width
	subq	user_base(%rip), %rax
	cmpq	$(4096 - \width), %rax
	ja	refused
	addq	user_memory(%rip), %rax
.endm

	.globl xk_native_load1, xk_native_load2, xk_native_load4, xk_native_load8
xk_native_load1:
	CHECK	1
	movzbl	(%rax), %eax
	clc
	ret
xk_native_load2:
	CHECK	2
	movzwl	(%rax), %eax
	clc
	ret
xk_native_load4:
	CHECK	4
	movl	(%rax), %eax
	clc
	ret
xk_native_load8:
	CHECK	8
	movq	(%rax), %rax
	clc
	ret
	.globl xk_native_store1, xk_native_store2, xk_native_store4, xk_native_store8
xk_native_store1:
	CHECK	1
	movb	%cl, (%rax)
	clc
	ret
xk_native_store2:
	CHECK	2
	movw	%cx, (%rax)
	clc
	ret
xk_native_store4:
	CHECK	4
	movl	%ecx, (%rax)
	clc
	ret
xk_native_store8:
	CHECK	8
	movq	%rcx, (%rax)
	clc
	ret
refused:
	stc
	ret

	.globl xk_native_per_cpu
xk_native_per_cpu:
	movabsq	$0xffff888000000800, %rax
	ret

	.globl xk_native_return
xk_native_return:
	ret

/*
 * int user_enter(u64 registers[16], u64 *flags, const void *code): runs the code with these
 * registers, including the stack pointer. The code continues at user_back, or at user_faulted,
 * which returns -EFAULT.
 */
	.globl user_enter, user_back, user_faulted
user_enter:
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rdi, registers(%rip)
	movq	%rsi, flags(%rip)
	movq	%rdx, code(%rip)
	movl	$0, status(%rip)
	pushq	(%rsi)
	popfq
	movq	%rsp, stack(%rip)
	movq	0(%rdi), %rax
	movq	8(%rdi), %rcx
	movq	16(%rdi), %rdx
	movq	24(%rdi), %rbx
	movq	32(%rdi), %rsp
	movq	40(%rdi), %rbp
	movq	48(%rdi), %rsi
	movq	64(%rdi), %r8
	movq	72(%rdi), %r9
	movq	80(%rdi), %r10
	movq	88(%rdi), %r11
	movq	96(%rdi), %r12
	movq	104(%rdi), %r13
	movq	112(%rdi), %r14
	movq	120(%rdi), %r15
	movq	56(%rdi), %rdi
	jmp	*code(%rip)
user_faulted:
	movl	$-14, status(%rip)
user_back:
	movq	%rdi, kept(%rip)
	movq	registers(%rip), %rdi
	movq	%rax, 0(%rdi)
	movq	%rcx, 8(%rdi)
	movq	%rdx, 16(%rdi)
	movq	%rbx, 24(%rdi)
	movq	%rsp, 32(%rdi)
	movq	%rbp, 40(%rdi)
	movq	%rsi, 48(%rdi)
	movq	%r8, 64(%rdi)
	movq	%r9, 72(%rdi)
	movq	%r10, 80(%rdi)
	movq	%r11, 88(%rdi)
	movq	%r12, 96(%rdi)
	movq	%r13, 104(%rdi)
	movq	%r14, 112(%rdi)
	movq	%r15, 120(%rdi)
	movq	stack(%rip), %rsp
	pushfq
	popq	%rax
	movq	flags(%rip), %rsi
	movq	%rax, (%rsi)
	movq	kept(%rip), %rax
	movq	%rax, 56(%rdi)
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	cld
	movl	status(%rip), %eax
	ret

	.local registers, flags, code, stack, kept, status
	.comm registers, 8, 8
	.comm flags, 8, 8
	.comm code, 8, 8
	.comm stack, 8, 8
	.comm kept, 8, 8
	.comm status, 4, 4

	.section .note.GNU-stack, "", @progbits
