/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Space for stubs. Unwinders do not know the stack layout in it and report that: a stack that ends
 * here is unreliable.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/unwind_hints.h>

#include "base/stub_layout.h"

	.text
	.balign 256
SYM_CODE_START(xk_stub_pool)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	.skip	XK_STUBS * XK_STUB_LEN, 0xcc
	ud2
SYM_CODE_END(xk_stub_pool)
