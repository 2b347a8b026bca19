/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads with unreadable stacks that a tune leaves out of account; ignore.c. */
#ifndef _XK_IGNORE_H
#define _XK_IGNORE_H

#include <linux/sched.h>
#include <linux/types.h>

struct file;
struct xk_error;
struct xk_tune;
struct xk_live_transition;

/* May sleep: refused unless its stack cannot be read for a while. */
int xk_ignore(struct file *caller, u32 id, pid_t number, struct xk_error *error);

/* By all tunes of the transition. Also in a stop. */
bool xk_is_ignored(const struct xk_live_transition *transition, const struct task_struct *task);

/* Their numbers, up to XK_MAX_IGNORED; how many there are. */
unsigned int xk_ignored_describe(struct xk_tune *tune, s32 *numbers);
void xk_ignored_free(struct xk_tune *tune);

#endif /* _XK_IGNORE_H */
