/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions that differ in the room after their last instruction. */
#include <linux/linkage.h>

#include "target_function.h"

	.text

/* Whether edi > 32. There is room for a jump between the branch and its target. */
	.macro	COMPARE
	xorl	%eax, %eax
	cmpl	$32, %edi
	jbe	1f			/* +0x05 */
	movl	$1, %eax
	movl	%eax, %edx		/* +0x0c */
	addl	$0, %edx
	nop				/* +0x11 */
1:	movl	%eax, %edx
	movl	%edx, %eax
	jmp	3f
2:	RET
3:	addl	$0, %eax
	jmp	2b
	.endm

/* int xk_target_roomy(int x): three bytes of padding */
FUNCTION(xk_target_roomy)
	COMPARE
	int3
	int3
	int3
SYM_FUNC_END(xk_target_roomy)

SYM_START(xk_target_roomy_next, SYM_L_LOCAL, SYM_A_NONE)
	RET
SYM_FUNC_END(xk_target_roomy_next)

/* int xk_target_tight(int x): no padding */
FUNCTION(xk_target_tight)
	COMPARE
SYM_FUNC_END(xk_target_tight)

SYM_START(xk_target_tight_next, SYM_L_LOCAL, SYM_A_NONE)
	RET
SYM_FUNC_END(xk_target_tight_next)

/* int xk_target_brief(int x): one byte of padding, and the room before the next function */
FUNCTION(xk_target_brief)
	COMPARE
	int3
SYM_FUNC_END(xk_target_brief)

SYM_START(__pfx_xk_target_brief_next, SYM_L_LOCAL, SYM_A_NONE)
	.skip	16, 0x90
	RET
SYM_FUNC_END(__pfx_xk_target_brief_next)
