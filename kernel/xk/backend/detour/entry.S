/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way from a stub to a handler. Elsewhere than in the handler,
 * unwinders do not know what is on the stack, and say so: a stack that ends here is
 * unreliable. In the handler, where a thread may be switched out, they find a pt_regs.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>
#include <asm/smap.h>
#include <asm/unwind_hints.h>

#include "base/stub_layout.h"

/* struct pt_regs */
#define REGS_ORIG_AX	(15 * 8)
#define REGS_IP	(16 * 8)
#define REGS_SP	(19 * 8)
#define REGS_SS	(20 * 8)
/* How much of it functions in C leave as it was: r15 to r12, rbp and rbx. */
#define PRESERVED	(6 * 8)

/*
 * A stub has pushed the upper part of a pt_regs and called, so that the address in
 * the stub is where orig_ax belongs. Where ss does, it has left its struct xk_stub;
 * sp is that of before, less that. Pushes the rest, and calls a function of C with
 * the pt_regs and the stub.
 */
.macro CALL_WITH_REGS function:req
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	%rax
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	addq	$8, REGS_SP(%rsp)
	movq	%rsp, %rdi
	movq	REGS_SS(%rsp), %rsi
	movq	$0x18, REGS_SS(%rsp)
	ASM_CLAC
	cld
	/* Who unwinds comes to the function that has the site. */
	UNWIND_HINT_REGS
	call	\function
	UNWIND_HINT_UNDEFINED
.endm

.macro POP_OTHERS
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rax
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
.endm

	.text

/*
 * xk_detour_run() works on the registers, all of which are taken from it. Where the
 * update was not made, it returns further on: see stub_code.c. The stub takes ip to ss
 * from the stack.
 */
SYM_CODE_START(xk_stub_call_handler)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	CALL_WITH_REGS xk_detour_run
	/* 0, or how much further on it returns. */
	addq	%rax, REGS_ORIG_AX(%rsp)
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	POP_OTHERS
	RET
SYM_CODE_END(xk_stub_call_handler)
_ASM_NOKPROBE(xk_stub_call_handler)

/*
 * xk_detour_decide() leaves the registers alone, and says what the value is: the stub
 * finds it where ip was, which is first on the stack.
 */
SYM_CODE_START(xk_stub_call_policy)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	CALL_WITH_REGS xk_detour_decide
	movq	%rax, REGS_IP(%rsp)
	addq	$PRESERVED, %rsp
	POP_OTHERS
	RET
SYM_CODE_END(xk_stub_call_policy)
_ASM_NOKPROBE(xk_stub_call_policy)
