/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The code between a stub and its handler. Except in the handler, unwinders do not know the stack
 * layout and report that: a stack that ends here is unreliable. In the handler, where a thread may
 * be switched out, they find a pt_regs.
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
/* Size of its members that C functions preserve: r15 to r12, rbp and rbx. */
#define PRESERVED	(6 * 8)

/*
 * A stub has pushed the upper part of a pt_regs and called, so the address in the stub is in the
 * place of orig_ax. The stub has stored its struct xk_stub in the place of ss. sp is the original
 * one minus 8. Pushes the rest of the pt_regs, and calls a C function with the pt_regs and the
 * stub.
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
	/* An unwinder continues in the function that contains the site. */
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
 * Calls xk_detour_run(), which may change all registers in the pt_regs, and restores them from it.
 * If the update was not made, it returns to a later address: see stub_code.c. The stub pops ip to
 * ss.
 */
SYM_CODE_START(xk_stub_call_handler)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	CALL_WITH_REGS xk_detour_run
	/* 0, or how much later it returns. */
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
 * Calls xk_detour_decide(), which does not change registers and returns the value. The stub finds
 * the value in the place of ip, at the top of the stack.
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
