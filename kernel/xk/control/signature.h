/* SPDX-License-Identifier: GPL-2.0-only */
/* Tables that somebody signed: signature.c. */
#ifndef _XK_SIGNATURE_H
#define _XK_SIGNATURE_H

#include <linux/types.h>

struct xk_error;
struct xk_load;

bool xk_signed_only(void);
int xk_signature_check(const void *table, size_t len, const struct xk_load *load,
		       struct xk_error *error);
int xk_signature_init(void);
void xk_signature_exit(void);

#endif /* _XK_SIGNATURE_H */
