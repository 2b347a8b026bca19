/* SPDX-License-Identifier: GPL-2.0-only */
/* The start of functions in assembly. */
#ifndef _XK_TARGET_FUNCTION_H
#define _XK_TARGET_FUNCTION_H

/* SYM_FUNC_START() without ENDBR, which the kernel would remove. */
#define FUNCTION(name) SYM_START(name, SYM_L_GLOBAL, SYM_A_ALIGN)
#define LOCAL_FUNCTION(name) SYM_START(name, SYM_L_LOCAL, SYM_A_ALIGN)

#endif /* _XK_TARGET_FUNCTION_H */
