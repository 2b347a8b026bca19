/* SPDX-License-Identifier: GPL-2.0-only */
/* Nobody traces in user space. */
#ifndef _XK_USER_TRACE_H
#define _XK_USER_TRACE_H

#include "xk_sched.h"

static inline void trace_xk_sched_change(const struct xk_thread *thread, int event, int to)
{
}

static inline void trace_xk_sched_move(const struct xk_thread *thread, int to)
{
}

#endif /* _XK_USER_TRACE_H */
