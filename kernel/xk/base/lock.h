/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lock of xk.ko, and the order of locks:
 *
 *	the notifier chain of modules (module_notify_list)
 *	  xk_lock
 *	    kprobe_mutex (xk_probes_lock(), and inside of register_kprobe() and similar functions)
 *	    cpu_hotplug_lock, for reading
 *	      text_mutex
 *	        the stop of the machine
 *
 * No code waits for user space while it holds xk_lock: requests are copied before. Handlers take no
 * lock.
 */
#ifndef _XK_LOCK_H
#define _XK_LOCK_H

#include <linux/mutex.h>

struct workqueue_struct;

/* Protects the list of tunes and everything in it, except what handlers read. */
extern struct mutex xk_lock;

/* For work without a waiting caller. */
extern struct workqueue_struct *xk_workqueue;

#endif /* _XK_LOCK_H */
