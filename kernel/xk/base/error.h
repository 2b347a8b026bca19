/* SPDX-License-Identifier: GPL-2.0-only */
/* Reasons of refusals, for users: error.c. Shared with xk_tunable.ko. */
#ifndef _XK_ERROR_H
#define _XK_ERROR_H

#include <linux/compiler_attributes.h>

/* The size of the error text in all structures for user space. */
#define XK_ERROR_TEXT 256

/* The text that a refused call returns. */
struct xk_error {
	char text[XK_ERROR_TEXT];
};

/* Formats the reason and returns `ret`. Takes no lock; does not sleep. */
__printf(3, 4) int xk_refuse(struct xk_error *error, int ret, const char *format, ...);

#endif /* _XK_ERROR_H */
