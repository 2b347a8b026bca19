/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether a function is the analysed one: verify.c. Under xk_lock; may sleep. */
#ifndef _XK_VERIFY_H
#define _XK_VERIFY_H

#include "model/tune.h"

struct module;

/*
 * Verifies the symbol, the module and the bytes of a place, and finds its address if that is
 * unknown. `module` is the loaded module of the place, or NULL for vmlinux. `probed` is the offset
 * of an instruction that may have a probe. `view` receives `len` running bytes, at least as many as
 * were analysed. Returns 0, or an error with its reason in `error`: -ENOENT, -EINVAL, -EFAULT,
 * -EBADMSG (other bytes), -EBUSY (a jump of an earlier tune is left), -ENOMEM.
 */
int xk_place_verify(struct xk_place *place, const struct module *module, u32 probed,
		    u8 *view, u32 len, struct xk_error *error);

/*
 * Replaces what xk.ko wrote into `view`, a copy of the text from `start` on, by the original bytes.
 * Under xk_lock.
 */
void xk_undo_own(u8 *view, unsigned long start, u32 len);

#endif /* _XK_VERIFY_H */
