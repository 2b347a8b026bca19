/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The CPUs of a policy: cpus.c. They are a set that user space chooses, less CPUs that are offline.
 * If none is left, the policy has all. Threads that cannot go there stay where they may be: those
 * with another affinity, and those that may not migrate.
 */
#ifndef _XK_SCHED_CPUS_H
#define _XK_SCHED_CPUS_H

#include "xk_sched.h"

/* All CPUs at first. May sleep. */
int xk_cpus_init(struct xk_sched_policy *policy);
void xk_cpus_free(struct xk_sched_policy *policy);

/* Whether the thread need not leave this core. Its affinity must not change meanwhile. */
static inline bool xk_is_home(const struct xk_thread *thread, int core)
{
	const struct task_struct *task = thread->task;

	return xk_policy_has(thread->policy, core) || task->migration_disabled ||
	       !cpumask_intersects(xk_policy_cpus(thread->policy), task->cpus_ptr);
}

/* The core, or another one to which the thread has to go. */
int xk_home(const struct xk_thread *thread, int core);
/* The same for a thread that is in a queue, and cannot stay on the core `gone`. */
int xk_home_but(const struct xk_thread *thread, int core, int gone);

#endif /* _XK_SCHED_CPUS_H */
