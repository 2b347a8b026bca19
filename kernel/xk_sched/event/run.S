/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls an event of a policy. The place to which it returns, and the stack there, are known while it
 * runs, so that escape.c can make an interrupted event return at once.
 */
#include <linux/linkage.h>
#include <asm/nospec-branch.h>

/*
 * unsigned long xk_event_run(first, second, third, fourth, void *event, struct xk_context *context)
 *
 * The context begins with the stack, which is not NULL from before the event is called until it has
 * returned, and is above the stack pointer exactly while the event runs; and with what the event
 * preserves if it returns.
 */
SYM_FUNC_START(xk_event_run)
	movq	%rbx, 8(%r9)
	movq	%rbp, 16(%r9)
	movq	%r12, 24(%r9)
	movq	%r13, 32(%r9)
	movq	%r14, 40(%r9)
	movq	%r15, 48(%r9)
	pushq	%r9
	movq	%rsp, (%r9)
	CALL_NOSPEC r8
SYM_INNER_LABEL(xk_event_returned, SYM_L_GLOBAL)
	ANNOTATE_NOENDBR
	popq	%rcx
	movq	$0, (%rcx)
	RET
SYM_FUNC_END(xk_event_run)

SYM_FUNC_START(xk_return)
	ANNOTATE_NOENDBR
	RET
SYM_FUNC_END(xk_return)
