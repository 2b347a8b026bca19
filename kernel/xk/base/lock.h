/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lock of xk.ko, and the order of locks:
 *
 *	the notifier chain of modules (module_notify_list)
 *	  xk_lock
 *	    kprobe_mutex (inside register_kprobe() and its like)
 *	    cpu_hotplug_lock, for reading
 *	      text_mutex
 *	        the stop of the machine
 *
 * Nothing that may wait for user space is done under xk_lock: requests are copied in before
 * it is taken. Handlers take no lock.
 */
#ifndef _XK_LOCK_H
#define _XK_LOCK_H

#include <linux/mutex.h>

struct workqueue_struct;

/* Guards the list of tunes, and everything in it but what handlers read. */
extern struct mutex xk_lock;

/* For work that goes on without a caller who waits. */
extern struct workqueue_struct *xk_workqueue;

#endif /* _XK_LOCK_H */
