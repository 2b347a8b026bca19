/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether a function is what the analysis saw: verify.c. Under xk_lock. */
#ifndef _XK_VERIFY_H
#define _XK_VERIFY_H

#include "model/tune.h"

struct module;

/*
 * `module` is that of the place, loaded; NULL for vmlinux. `probed` is the offset of an
 * instruction that could have a probe. Fills `view` with the running bytes, at least as many
 * as were analysed.
 */
int xk_place_verify(struct xk_place *place, const struct module *module, u32 probed,
		    u8 *view, u32 len, struct xk_error *error);

#endif /* _XK_VERIFY_H */
