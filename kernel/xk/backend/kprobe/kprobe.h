/* SPDX-License-Identifier: GPL-2.0-only */
/* The kprobe backend. It uses exported interfaces only. */
#ifndef _XK_KPROBE_H
#define _XK_KPROBE_H

#include "model/backend.h"

extern const struct xk_backend xk_backend_kprobe;

#endif /* _XK_KPROBE_H */
