/* SPDX-License-Identifier: GPL-2.0-only */
/* The structure of each thread of the system: thread.c. */
#ifndef _XK_SCHED_THREAD_H
#define _XK_SCHED_THREAD_H

#include <linux/sched.h>
#include <linux/spinlock.h>

#include "xk_sched.h"

/*
 * Protects the table and all choices. Interrupts are off while it is held. Taken inside of run
 * queue locks; no other lock is taken inside of it.
 */
extern raw_spinlock_t xk_threads_lock;

int xk_threads_init(void);
/* After the last thread was removed. May sleep. */
void xk_threads_exit(void);

/* Adds a thread, which makes the same choice as `parent` unless that is NULL. May sleep. */
int xk_thread_add(struct task_struct *task, struct task_struct *parent);
/* Frees it after a grace period. */
void xk_thread_remove(struct task_struct *task);

/* NULL if there is none. Under xk_threads_lock or rcu_read_lock(). */
struct xk_thread *xk_thread_find(const struct task_struct *task);

/* Calls `visit` for each thread under xk_threads_lock, until it returns true. */
void xk_threads_visit(bool (*visit)(struct xk_thread *thread, void *data), void *data);

/*
 * The thread of a task of the class; NULL outside of it. The field belongs to schedulers with
 * queues ordered by time, which this one has not.
 */
static inline struct xk_thread *xk_thread_of(const struct task_struct *task)
{
	return (struct xk_thread *)task->scx.dsq_vtime;
}

/* When a task comes to the class, and when it leaves it: with its run queue lock. */
struct xk_thread *xk_thread_enter(struct task_struct *task);

static inline void xk_thread_exit(struct task_struct *task)
{
	task->scx.dsq_vtime = 0;
}

#endif /* _XK_SCHED_THREAD_H */
