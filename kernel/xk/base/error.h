/* SPDX-License-Identifier: GPL-2.0-only */
/* Why something is refused, for people; error.c. Also a part of xk_tunable.ko. */
#ifndef _XK_ERROR_H
#define _XK_ERROR_H

#include <linux/compiler_attributes.h>

/* As much as every structure of user space has room for. */
#define XK_ERROR_TEXT 256

/* The text that a call returns when it refuses. */
struct xk_error {
	char text[XK_ERROR_TEXT];
};

__printf(3, 4) int xk_refuse(struct xk_error *error, int ret, const char *format, ...);

#endif /* _XK_ERROR_H */
