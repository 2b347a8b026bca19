/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _XK_USER_LINUX_TYPES_H
#define _XK_USER_LINUX_TYPES_H

#include_next <linux/types.h>
#include "user_kernel.h"

#endif /* _XK_USER_LINUX_TYPES_H */
