/* SPDX-License-Identifier: GPL-2.0-only */
/* Names that target_text.S uses, too, like static functions of two files. */
#include <linux/linkage.h>

#include "target_function.h"

	.text

/* The second of two functions with the same name: 33, then the same as the first */
LOCAL_FUNCTION(xk_target_twin)
	movl	$33, %eax
	movl	%eax, %edx
	addl	$0, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_twin)
SYM_FUNC_ALIAS(xk_target_twin_there, xk_target_twin)
