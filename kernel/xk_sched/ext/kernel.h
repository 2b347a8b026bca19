/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions of sched_ext that modules cannot link to: kernel.c. */
#ifndef _XK_SCHED_KERNEL_H
#define _XK_SCHED_KERNEL_H

#include <linux/types.h>

struct sched_ext_ops;
struct task_struct;
struct xk_error;

/* Looks all of them up. Called once, before the others. May sleep. */
int xk_ext_init(struct xk_error *error);

/*
 * Register and unregister the scheduler. Unregister if and only if registering returned 0, even
 * if sched_ext has ejected the scheduler meanwhile. May sleep.
 */
int xk_ext_register(struct sched_ext_ops *ops);
void xk_ext_unregister(struct sched_ext_ops *ops);

/*
 * Gives the task to the local queue of this CPU (dispatch), or of the CPU of the lock that is held
 * (enqueue), for this time. Only in these two callbacks. Takes no lock, so a lock of a queue may
 * be held. Returns false if sched_ext is about to eject the scheduler.
 */
bool xk_ext_run(struct task_struct *task, u64 slice_ns, u64 enq_flags);

/* Makes a CPU choose again; `preempt`: even if a task of the class runs. Any callback. */
void xk_ext_kick(int cpu, bool preempt);

/* As the kernel's default does: the CPU for a task that wakes, idle if `idle` is set. */
int xk_ext_select(struct task_struct *task, int prev_cpu, u64 wake_flags, bool *idle);

#endif /* _XK_SCHED_KERNEL_H */
