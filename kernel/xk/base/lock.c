// SPDX-License-Identifier: GPL-2.0-only
/* The lock of xk.ko; see lock.h. */
#include "base/lock.h"

/* The list of tunes, and everything in it but what handlers read. */
DEFINE_MUTEX(xk_lock);
struct workqueue_struct *xk_workqueue;
