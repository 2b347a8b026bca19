/* SPDX-License-Identifier: GPL-2.0-only */
/* A policy takes over the threads of another: replace.c. */
#ifndef _XK_SCHED_REPLACE_H
#define _XK_SCHED_REPLACE_H

struct xk_error;
struct xk_sched_replacement;

/* Says how many threads have moved. May sleep. */
int xk_policy_replace(struct xk_sched_replacement *request, struct xk_error *error);

#endif /* _XK_SCHED_REPLACE_H */
