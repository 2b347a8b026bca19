/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between the supported kernels: interfaces of newer kernels, implemented with those of
 * older ones, and replacements for what a configuration hides from modules.
 */
#ifndef _XK_COMPAT_H
#define _XK_COMPAT_H

#include <linux/btf.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/version.h>
#include <linux/workqueue.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void hrtimer_setup(struct hrtimer *timer,
				 enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/* From 6.13 on, the argument of MODULE_IMPORT_NS() is a string. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define COMPAT_IMPORT_NS(ns) MODULE_IMPORT_NS(ns)
#else
#define COMPAT_IMPORT_NS(ns) MODULE_IMPORT_NS(#ns)
#endif

/*
 * Calls the kernel's alloc_workqueue() even where a macro of that name replaces it (kernel/faulty).
 */
#ifdef alloc_workqueue
#define compat_alloc_workqueue(...) alloc_hooks(alloc_workqueue_noprof(__VA_ARGS__))
#else
#define compat_alloc_workqueue(...) alloc_workqueue(__VA_ARGS__)
#endif

/* Newer kernels take it for granted of every kfunc. */
#ifndef KF_TRUSTED_ARGS
#define KF_TRUSTED_ARGS	0
#endif

/* The kernel's macro also accepts a lock instead of RCU; that lock is not exported to modules. */
#ifdef CONFIG_PROVE_RCU_LIST
#undef __for_each_thread
#define __for_each_thread(signal, t) \
	list_for_each_entry_rcu(t, &(signal)->thread_head, thread_node)
#endif

#endif /* _XK_COMPAT_H */
