/* SPDX-License-Identifier: GPL-2.0-only */
/* Permissions for changes: privilege.c. The functions take no lock of xk.ko. */
#ifndef _XK_PRIVILEGE_H
#define _XK_PRIVILEGE_H

#include <linux/types.h>

struct file;
struct xk_error;

/* Whether lockdown forbids changes of kernel memory. */
bool xk_locked_down(void);

/* Whether `caller` may return to the default: 0, or -EACCES with the reason in `error`. */
int xk_may_go_back(const struct file *caller, struct xk_error *error);

/*
 * Whether `caller` may make any change: 0, or -EACCES with the reason in `error`. `vouched`: a
 * signature covers every possible effect, so lockdown does not forbid it.
 */
int xk_may_change(const struct file *caller, bool vouched, struct xk_error *error);

#endif /* _XK_PRIVILEGE_H */
