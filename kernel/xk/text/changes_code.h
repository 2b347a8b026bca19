/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions whose own code must not change while the kernel runs: changes_code.c. */
#ifndef _XK_CHANGES_CODE_H
#define _XK_CHANGES_CODE_H

/* Returns why the code of this function must not change, or NULL. Kprobes are no change. */
const char *xk_changes_code(const char *function);

/* The same for the function that contains the address. */
const char *xk_changes_code_at(unsigned long address);

#endif /* _XK_CHANGES_CODE_H */
