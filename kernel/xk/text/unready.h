/* SPDX-License-Identifier: GPL-2.0-only */
/* Code that is executed while a CPU is not set up: unready.c. */
#ifndef _XK_UNREADY_H
#define _XK_UNREADY_H

#include <linux/types.h>

/* Whether this function, or a part of it that the compiler made, is such code. */
bool xk_is_unready(const char *function);

/* The same for the function that contains the address. */
bool xk_is_unready_at(unsigned long address);

#endif /* _XK_UNREADY_H */
