/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads choose a policy: choose.c. */
#ifndef _XK_SCHED_CHOOSE_H
#define _XK_SCHED_CHOOSE_H

#include <linux/types.h>

struct xk_error;
struct xk_sched_choice;

/* Gives threads to a policy, or to the fair class. May sleep. */
int xk_choose(struct xk_sched_choice *choice, struct xk_error *error);

#endif /* _XK_SCHED_CHOOSE_H */
