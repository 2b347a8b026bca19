/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads that exit and are on no list of threads any more; exiting.c. */
#ifndef _XK_EXITING_H
#define _XK_EXITING_H

#include <linux/types.h>

struct task_struct;

int xk_exiting_init(void);
void xk_exiting_exit(void);

/* Returns when every exiting thread is known. May sleep for a second after xk_exiting_init(). */
void xk_exiting_wait(void);

/*
 * Each thread that exits and that for_each_process_thread() does not find. In a stop, or
 * under rcu_read_lock(). False: there are more than can be remembered.
 */
bool xk_visit_exiting(void (*visit)(struct task_struct *task, void *data), void *data);

#endif /* _XK_EXITING_H */
