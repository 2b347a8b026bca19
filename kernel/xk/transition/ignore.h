/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads with unreadable stacks that a tune does not wait for: ignore.c. */
#ifndef _XK_IGNORE_H
#define _XK_IGNORE_H

#include <linux/sched.h>
#include <linux/types.h>

struct file;
struct xk_error;
struct xk_tune;
struct xk_live_transition;

/*
 * Makes the tune `id` ignore thread `number`. Refuses unless the stack was unreadable at each look
 * within 200 ms at which the thread did not run. Takes xk_lock; may sleep. Returns 0, or an error
 * with its reason in `error`: -ESRCH, -EINVAL (readable), -EAGAIN (always running), -ENOENT or
 * -EPERM (tune), -EKEYREJECTED (signed), -EOPNOTSUPP (its instructions change), -ENOSPC.
 */
int xk_ignore(struct file *caller, u32 id, pid_t number, struct xk_error *error);

/* Whether all tunes of the transition ignore the thread. Under xk_lock, also in a stop. */
bool xk_is_ignored(const struct xk_live_transition *transition, const struct task_struct *task);

/*
 * Stores the numbers of the ignored threads, at most XK_MAX_IGNORED. Returns how many there are.
 * Forgets threads that have ended. Under xk_lock.
 */
unsigned int xk_ignored_describe(struct xk_tune *tune, s32 *numbers);

#endif /* _XK_IGNORE_H */
