/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The code between a slot and the handler of probes. Except in the handler, unwinders do not know
 * the stack layout and report that.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>
#include <asm/segment.h>
#include <asm/smap.h>
#include <asm/unwind_hints.h>

#include "base/slot_layout.h"

/* struct pt_regs, and the address in the slot above it */
#define REGS_IP	(16 * 8)
#define REGS_SP	(19 * 8)
#define RETURN		(21 * 8)
/* Size of its members that C functions preserve: r15 to r12, rbp and rbx. */
#define PRESERVED	(6 * 8)

	.text

/*
 * A slot has called, so the address in the slot is at the top of the stack. Builds a struct pt_regs
 * below it, as an exception before the probed instruction would. Calls xk_probe_run() with it and
 * with the point of the slot, restores the registers, and returns to the slot. Without `all`, r12
 * to r15 are not stored: no program at the point reads them.
 */
.macro ENTER all:req
	pushq	$__KERNEL_DS
	pushq	%rsp
	pushfq
	pushq	$__KERNEL_CS
	pushq	$0
	pushq	$-1
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
	.if \all
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	.else
	subq	$32, %rsp
	.endif
	/* Two values had been pushed before it was stored. */
	addq	$16, REGS_SP(%rsp)
	movq	RETURN(%rsp), %rsi
	andq	$-XK_SLOT_LEN, %rsi
	movq	(%rsi), %rsi
	movq	XK_POINT_ADDRESS(%rsi), %rax
	movq	%rax, REGS_IP(%rsp)
	movq	%rsp, %rdi
	ASM_CLAC
	cld
	/* An unwinder continues in the function that contains the probed instruction. */
	UNWIND_HINT_REGS
	call	xk_probe_run
	UNWIND_HINT_UNDEFINED
	addq	$PRESERVED, %rsp
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rax
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	leaq	24(%rsp), %rsp		/* orig_ax, ip, cs */
	popfq
	leaq	16(%rsp), %rsp		/* sp, ss */
	RET
.endm

SYM_CODE_START(xk_probe_enter)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	ENTER all=1
SYM_CODE_END(xk_probe_enter)
_ASM_NOKPROBE(xk_probe_enter)

SYM_CODE_START(xk_probe_enter_few)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	ENTER all=0
SYM_CODE_END(xk_probe_enter_few)
_ASM_NOKPROBE(xk_probe_enter_few)
