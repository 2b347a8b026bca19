/* SPDX-License-Identifier: GPL-2.0-only */
/* How the functions in assembly begin. */
#ifndef _XK_TARGET_FUNCTION_H
#define _XK_TARGET_FUNCTION_H

/* SYM_FUNC_START() without the ENDBR, which the kernel would patch away. */
#define FUNCTION(name) SYM_START(name, SYM_L_GLOBAL, SYM_A_ALIGN)
#define LOCAL_FUNCTION(name) SYM_START(name, SYM_L_LOCAL, SYM_A_ALIGN)

#endif /* _XK_TARGET_FUNCTION_H */
