/* SPDX-License-Identifier: GPL-2.0-only */
/* What sched_ext calls: class.c. */
#ifndef _XK_SCHED_CLASS_H
#define _XK_SCHED_CLASS_H

#include <linux/types.h>

#include "ext/ops.h"

struct xk_error;

/* Callbacks about threads: threads.c. */
s32 xk_class_select_cpu(struct task_struct *task, s32 prev_cpu, u64 flags);
void xk_class_enqueue(struct task_struct *task, u64 flags);
void xk_class_dequeue(struct task_struct *task, u64 flags);
void xk_class_tick(struct task_struct *task);
bool xk_class_yield(struct task_struct *from, struct task_struct *to);
void xk_class_quiescent(struct task_struct *task, u64 flags);
s32 xk_class_init_task(struct task_struct *task, struct scx_init_task_args *args);
void xk_class_exit_task(struct task_struct *task, struct scx_exit_task_args *args);
void xk_class_enable(struct task_struct *task);
void xk_class_disable(struct task_struct *task);

/* Callbacks about CPUs: cores.c. */
void xk_class_dispatch(s32 cpu, struct task_struct *prev);
void xk_class_cpu_online(s32 cpu);
void xk_class_cpu_offline(s32 cpu);

/* Begin and end to serve sched_ext. May sleep. */
int xk_class_start(struct xk_error *error);
void xk_class_stop(void);

/* Whether sched_ext calls us; if not, `reason` says why (XK_SCHED_TEXT_LEN bytes). */
bool xk_class_is_active(char *reason);

#endif /* _XK_SCHED_CLASS_H */
