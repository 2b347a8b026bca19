/* SPDX-License-Identifier: GPL-2.0-only */
/* What policies do: stats.c. */
#ifndef _XK_SCHED_CONTROL_STATS_H
#define _XK_SCHED_CONTROL_STATS_H

#include <linux/fs.h>

#include "uapi/xk_sched.h"

struct xk_error;

/* All may sleep. The descriptor counts from its first call until it is released. */
int xk_stats_read(struct file *file, struct xk_sched_stats *stats);
void xk_stats_release(struct file *file);

/* Copies what is known of each thread of a policy to user space. */
int xk_stats_dump(struct xk_sched_dump *request, struct xk_error *error);

#endif /* _XK_SCHED_CONTROL_STATS_H */
