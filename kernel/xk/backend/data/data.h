/* SPDX-License-Identifier: GPL-2.0-only */
/* The data backend: sites that are static objects, not code. */
#ifndef _XK_DATA_H
#define _XK_DATA_H

#include "model/backend.h"

extern const struct xk_backend xk_backend_data;

#endif /* _XK_DATA_H */
