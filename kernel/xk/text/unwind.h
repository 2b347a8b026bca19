/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel's unwinder knows about text: unwind.c. */
#ifndef _XK_UNWIND_H
#define _XK_UNWIND_H

#include <linux/types.h>

struct module;

/*
 * Whether the unwinder finds the stack in the same way at both addresses, in the text of `module`,
 * which is held, or of vmlinux (NULL). Under xk_lock; may sleep.
 */
bool xk_unwind_agrees(const struct module *module, unsigned long one, unsigned long other);

#endif /* _XK_UNWIND_H */
