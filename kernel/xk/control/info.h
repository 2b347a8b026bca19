/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Information for user space about tunes and their sites: info.c. The functions take xk_lock, and
 * return 0, or -ENOENT if there is no such tune or site.
 */
#ifndef _XK_INFO_H
#define _XK_INFO_H

#include "uapi/xk.h"

/* Fills `info` for tune number info->index in the list. */
int xk_tune_info(struct xk_tune_info *info);

/* Stores at most *nr_values values, and their total number in *nr_values. */
int xk_tune_values(u32 id, s64 *values, u32 *nr_values);

/* Fills `info` for site info->index of tune info->id. */
int xk_tune_site_info(struct xk_site_info *info);

#endif /* _XK_INFO_H */
