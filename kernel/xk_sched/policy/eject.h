/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads of a policy go to the fair class: eject.c. */
#ifndef _XK_SCHED_EJECT_H
#define _XK_SCHED_EJECT_H

#include "xk_sched.h"

int xk_eject_init(void);
void xk_eject_exit(void);

/* Prepares the fields of a new policy. */
void xk_eject_prepare(struct xk_sched_policy *policy);

/*
 * Gives all threads of a policy that is no longer live to the fair class. When it returns, no
 * thread is in the policy or has chosen it. May sleep.
 */
void xk_eject_threads(struct xk_sched_policy *policy);

/* Waits until an ejection that was reported has ended. May sleep. */
void xk_eject_wait(struct xk_sched_policy *policy);

/*
 * A thread of the class that is in no policy: it goes to the fair class soon. With its run queue
 * lock.
 */
void xk_eject_stray(void);

/* Gives all of them to the fair class. May sleep. */
void xk_eject_strays(void);

/* Change the class of a task; its nice value stays. May sleep. */
int xk_to_fair(struct task_struct *task);
int xk_to_ext(struct task_struct *task);

#endif /* _XK_SCHED_EJECT_H */
