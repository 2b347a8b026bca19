/* SPDX-License-Identifier: GPL-2.0-only */
/* A breakpoint that shows whether the kernel uses its table as int3.c expects. */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/nospec-branch.h>

	.text

/* int xk_int3_trial(void): 1 if the CPU continues at the target, 2 if after the breakpoint */
SYM_FUNC_START(xk_int3_trial)
SYM_INNER_LABEL(xk_int3_trial_at, SYM_L_GLOBAL)
	ANNOTATE_NOENDBR
	int3
	ANNOTATE_NOENDBR
	movl	$2, %eax
	RET
SYM_INNER_LABEL(xk_int3_trial_target, SYM_L_GLOBAL)
	ANNOTATE_NOENDBR
	movl	$1, %eax
	RET
SYM_FUNC_END(xk_int3_trial)
/* objtool takes a breakpoint for the end of the code. */
STACK_FRAME_NON_STANDARD xk_int3_trial
