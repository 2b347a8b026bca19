/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions of sched_ext that modules cannot link to: kernel.c. */
#ifndef _XK_SCHED_KERNEL_H
#define _XK_SCHED_KERNEL_H

#include <linux/types.h>

struct cpu_stop_work;
struct cpumask;
struct sched_ext_ops;
struct task_struct;
struct xk_error;

/* Looks all of them up. Called once, before the others. May sleep. */
int xk_ext_init(struct xk_error *error);

/* The address of a function of the kernel; 0: there is none. */
unsigned long xk_ext_address(const char *name);

/*
 * Register and unregister the scheduler. Unregister if and only if registering returned 0, even
 * if sched_ext has ejected the scheduler meanwhile: `ended` says that it has called `exit`. May
 * sleep.
 */
int xk_ext_register(struct sched_ext_ops *ops);
void xk_ext_unregister(struct sched_ext_ops *ops, bool ended);

/*
 * Gives the task to the local queue of this CPU (dispatch), or of the CPU of the lock that is held
 * (enqueue), for this time. Only in these two callbacks. Takes no lock, so a lock of a queue may
 * be held.
 */
void xk_ext_run(struct task_struct *task, u64 slice_ns, u64 enq_flags);

/* Makes a CPU choose again; `preempt`: even if a task of the class runs. Any callback. */
void xk_ext_kick(int cpu, bool preempt);

/* As the kernel's default does: the CPU for a task that wakes, idle if `idle` is set. */
int xk_ext_select(struct task_struct *task, int prev_cpu, u64 wake_flags, bool *idle);

/* An idle one of these CPUs, `prev_cpu` if it is one; negative: there is none. In select_cpu. */
int xk_ext_select_of(struct task_struct *task, int prev_cpu, const struct cpumask *cpus);

/*
 * What runs on this CPU is put back soon, for a moment in which nothing of sched_ext runs here.
 * `work` must not be in use. Interrupts are off, and no lock of a run queue is held.
 */
void xk_ext_interrupt(int (*function)(void *data), struct cpu_stop_work *work);

/* As stop_machine(), with cpus_read_lock(). The function is called on all CPUs, at once. */
int xk_ext_stop(int (*function)(void *data), void *data);

/*
 * KASAN watches the variables of functions on the stack. The functions of this part of a stack do
 * not return. In an exception or NMI.
 */
void xk_ext_forget_frames(unsigned long from, unsigned long to);

#endif /* _XK_SCHED_KERNEL_H */
