/* SPDX-License-Identifier: GPL-2.0-only */
/* Exiting threads that the thread list no longer contains: exiting.c. */
#ifndef _XK_EXITING_H
#define _XK_EXITING_H

#include <linux/types.h>

struct task_struct;

/*
 * Starts to follow exiting threads. Returns 0 or an error; reports an error of ftrace. May sleep.
 */
int xk_exiting_init(void);

/* Stops and drops all references. No tune is left. May sleep. */
void xk_exiting_exit(void);

/* Returns when every exiting thread is known. May sleep for a second after xk_exiting_init(). */
void xk_exiting_wait(void);

/*
 * Calls `visit` for each exiting thread that for_each_process_thread() does not find. In a stop, or
 * under rcu_read_lock(). Returns false if there may be more: the table was full.
 */
bool xk_visit_exiting(void (*visit)(struct task_struct *task, void *data), void *data);

#endif /* _XK_EXITING_H */
