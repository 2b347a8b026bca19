/* SPDX-License-Identifier: GPL-2.0-only */
/* Sites that are no code but a static object. */
#ifndef _XK_DATA_H
#define _XK_DATA_H

#include "model/backend.h"

extern const struct xk_backend xk_backend_data;

#endif /* _XK_DATA_H */
