/* SPDX-License-Identifier: GPL-2.0-only */
/* Who may change something: privilege.c. */
#ifndef _XK_PRIVILEGE_H
#define _XK_PRIVILEGE_H

#include <linux/types.h>

struct file;
struct xk_error;

bool xk_locked_down(void);
int xk_may_go_back(const struct file *caller, struct xk_error *error);
int xk_may_change(const struct file *caller, bool vouched, struct xk_error *error);

#endif /* _XK_PRIVILEGE_H */
