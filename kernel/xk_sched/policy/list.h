/* SPDX-License-Identifier: GPL-2.0-only */
/* The registered policies: list.c. */
#ifndef _XK_SCHED_LIST_H
#define _XK_SCHED_LIST_H

#include <linux/mutex.h>

#include "model/core.h"
#include "xk_sched.h"

/*
 * Held while a policy is registered or removed, and while threads choose. Taken before all other
 * locks.
 */
extern struct mutex xk_policies_lock;

/* By id; NULL: none. Readers without the lock have interrupts or preemption off. */
extern struct xk_sched_policy *xk_policies[XK_MAX_POLICIES];

/* Ids of the policies that have an event newly_idle. */
extern u32 xk_policies_newly_idle;

/* With xk_policies_lock. */
struct xk_sched_policy *xk_policy_find(const char *name);

/* A task comes to the class, or leaves it: with its run queue lock. */
void xk_policy_join(struct xk_sched_policy *policy, struct xk_thread *thread);
void xk_policy_leave(struct xk_thread *thread);
/* All CPUs are stopped: the thread is in a queue of its old policy, as before, or in none. */
void xk_policy_move(struct xk_thread *thread, struct xk_sched_policy *to);

#endif /* _XK_SCHED_LIST_H */
