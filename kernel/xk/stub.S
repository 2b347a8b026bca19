/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Room for stubs, and the way from a stub to a handler. Unwinders do not know what
 * is on the stack here, and say so: a stack that ends here is unreliable.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/nospec-branch.h>

#include "stub_layout.h"

/* struct pt_regs */
#define R15	(0 * 8)
#define R14	(1 * 8)
#define R13	(2 * 8)
#define R12	(3 * 8)
#define BP	(4 * 8)
#define BX	(5 * 8)
#define R11	(6 * 8)
#define R10	(7 * 8)
#define R9	(8 * 8)
#define R8	(9 * 8)
#define AX	(10 * 8)
#define CX	(11 * 8)
#define DX	(12 * 8)
#define SI	(13 * 8)
#define DI	(14 * 8)
#define ORIG_AX	(15 * 8)
#define IP	(16 * 8)
#define CS	(17 * 8)
#define FLAGS	(18 * 8)
#define SP	(19 * 8)
#define SS	(20 * 8)
#define REGS	(21 * 8)

	.text

/*
 * A stub has pushed its number and called: builds a pt_regs, lets xk_detour_run()
 * work on it, and takes general registers and flags from it. Where the update was
 * not made, it returns further on: see stubs.c.
 */
SYM_CODE_START(xk_stub_ask)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	pushfq
	leaq	-REGS(%rsp), %rsp
	movq	%r15, R15(%rsp)
	movq	%r14, R14(%rsp)
	movq	%r13, R13(%rsp)
	movq	%r12, R12(%rsp)
	movq	%rbp, BP(%rsp)
	movq	%rbx, BX(%rsp)
	movq	%r11, R11(%rsp)
	movq	%r10, R10(%rsp)
	movq	%r9, R9(%rsp)
	movq	%r8, R8(%rsp)
	movq	%rax, AX(%rsp)
	movq	%rcx, CX(%rsp)
	movq	%rdx, DX(%rsp)
	movq	%rsi, SI(%rsp)
	movq	%rdi, DI(%rsp)
	movq	REGS(%rsp), %rax
	movq	%rax, FLAGS(%rsp)
	/* Above: flags, the address in the stub, its number. */
	leaq	(REGS + 3 * 8)(%rsp), %rax
	movq	%rax, SP(%rsp)
	movq	$0x10, CS(%rsp)
	movq	$0x18, SS(%rsp)
	movq	$-1, ORIG_AX(%rsp)
	movq	%rsp, %rdi
	movq	(REGS + 2 * 8)(%rsp), %rsi
	cld
	call	xk_detour_run
	/* 0, or how much further on it returns. */
	addq	%rax, (REGS + 1 * 8)(%rsp)
	movq	FLAGS(%rsp), %rax
	movq	%rax, REGS(%rsp)
	movq	R15(%rsp), %r15
	movq	R14(%rsp), %r14
	movq	R13(%rsp), %r13
	movq	R12(%rsp), %r12
	movq	BP(%rsp), %rbp
	movq	BX(%rsp), %rbx
	movq	R11(%rsp), %r11
	movq	R10(%rsp), %r10
	movq	R9(%rsp), %r9
	movq	R8(%rsp), %r8
	movq	AX(%rsp), %rax
	movq	CX(%rsp), %rcx
	movq	DX(%rsp), %rdx
	movq	SI(%rsp), %rsi
	movq	DI(%rsp), %rdi
	leaq	REGS(%rsp), %rsp
	popfq
	RET
SYM_CODE_END(xk_stub_ask)

	.balign 256
SYM_CODE_START(xk_stub_pool)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	.skip	XK_STUBS * XK_STUB_LEN, 0xcc
	ud2
SYM_CODE_END(xk_stub_pool)
