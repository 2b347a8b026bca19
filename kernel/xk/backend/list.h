/* SPDX-License-Identifier: GPL-2.0-only */
/* The backends of xk.ko: list.c. */
#ifndef _XK_BACKEND_LIST_H
#define _XK_BACKEND_LIST_H

#include "model/backend.h"

/* In the order in which a site tries them; ends with NULL. For xk_backends_init(). */
extern const struct xk_backend *const xk_backend_list[];

#endif /* _XK_BACKEND_LIST_H */
