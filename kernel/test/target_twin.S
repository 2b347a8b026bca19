/* SPDX-License-Identifier: GPL-2.0-only */
/* Names that target_text.S uses, too, as static functions of two files would. */
#include <linux/linkage.h>

#include "target_function.h"

	.text

/* The other of two functions of one name: 33, then as the first */
LOCAL_FUNCTION(xk_target_twin)
	movl	$33, %eax
	movl	%eax, %edx
	addl	$0, %edx
	movl	%edx, %eax
	RET
SYM_FUNC_END(xk_target_twin)
SYM_FUNC_ALIAS(xk_target_twin_there, xk_target_twin)
