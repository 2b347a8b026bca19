/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hides the caller: unwinders do not know the stack layout of this function and report that. The
 * thread is then in one of two functions: outside of every span, or inside one.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/nospec-branch.h>
#include <asm/unwind_hints.h>

	.text

/* int xk_atomic_unreadable(ms, values): xk_atomic_hold(ms, values) if ms; else xk_atomic_rest() */
SYM_CODE_START(xk_atomic_unreadable)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	testl	%edi, %edi
	jz	1f
	call	xk_atomic_hold
	RET
1:	call	xk_atomic_rest
	RET
SYM_CODE_END(xk_atomic_unreadable)
