/* SPDX-License-Identifier: GPL-2.0-only */
/* What keeps other probes from becoming jumps over places that stubs lead to. */
#ifndef _XK_GUARD_H
#define _XK_GUARD_H

#include "relocate.h"

struct xk_guards;

/* For the window; NULL and `why` if it cannot be. Under xk_lock. */
struct xk_guards *xk_guards_create(const struct xk_window *window, const char **why);
void xk_guards_destroy(struct xk_guards *guards);

#endif /* _XK_GUARD_H */
