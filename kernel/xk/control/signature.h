/* SPDX-License-Identifier: GPL-2.0-only */
/* Signatures of tables: signature.c. */
#ifndef _XK_SIGNATURE_H
#define _XK_SIGNATURE_H

#include <linux/types.h>

struct xk_error;
struct xk_load;

/* Whether xk.ko was loaded with require_signed=1. */
bool xk_signed_only(void);

/*
 * Verifies the signature of a table. Returns 0, or an error with its reason in `error`:
 * -EKEYREJECTED (none, untrusted or wrong), -EINVAL, -EFAULT, -ENOMEM. Sleeps.
 */
int xk_signature_check(const void *table, size_t len, const struct xk_load *load,
		       struct xk_error *error);

/* Load and release the certificate. xk_signature_init() returns 0, or an error that it reports. */
int xk_signature_init(void);
void xk_signature_exit(void);

#endif /* _XK_SIGNATURE_H */
