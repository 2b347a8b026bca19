/* SPDX-License-Identifier: GPL-2.0-only */
/* What user space is told about tunes and their sites: info.c. They take xk_lock. */
#ifndef _XK_INFO_H
#define _XK_INFO_H

#include "uapi/xk.h"

int xk_tune_info(struct xk_tune_info *info);

/* In *nr_values: the room, then how many there are. */
int xk_tune_values(u32 id, s64 *values, u32 *nr_values);
int xk_tune_site_info(struct xk_site_info *info);

#endif /* _XK_INFO_H */
