/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is counted of policies while somebody looks: count.c. Otherwise, a static key skips it. All
 * functions but the first two need the lock of the core.
 */
#ifndef _XK_SCHED_COUNT_H
#define _XK_SCHED_COUNT_H

#include <linux/jump_label.h>

#include "model/core.h"

DECLARE_STATIC_KEY_FALSE(xk_counting);

/* Begin and end to count; both may sleep, and nest. */
void xk_count_begin(void);
void xk_count_end(void);

void __xk_count_ready(struct xk_thread *thread);
void __xk_count_chosen(struct xk_thread *thread, struct xk_policy_core *own, int core);

/* The thread is ready, or is so again in another queue. */
static inline void xk_count_ready(struct xk_thread *thread)
{
	if (static_branch_unlikely(&xk_counting))
		__xk_count_ready(thread);
}

/* The policy has chosen the thread for this core. */
static inline void xk_count_chosen(struct xk_thread *thread, struct xk_policy_core *own, int core)
{
	if (static_branch_unlikely(&xk_counting))
		__xk_count_chosen(thread, own, core);
}

#endif /* _XK_SCHED_COUNT_H */
