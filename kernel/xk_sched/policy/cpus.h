/* SPDX-License-Identifier: GPL-2.0-only */
/* Changes of the CPUs of policies: cpus.c, displace.c. */
#ifndef _XK_SCHED_POLICY_CPUS_H
#define _XK_SCHED_POLICY_CPUS_H

#include "xk_sched.h"

/*
 * Gives the policy these CPUs. Threads that are ready elsewhere move at once, those that run move
 * at their next tick. With the hotplug lock and xk_policies_lock. May sleep.
 */
void xk_cpus_change(struct xk_sched_policy *policy, const struct cpumask *wanted);

/* A CPU comes, or goes: for all policies. With both locks. May sleep. */
void xk_cpus_hotplug(int cpu, bool online);

/* Threads came to the policy on any core. With both locks. May sleep. */
void xk_cpus_settle(struct xk_sched_policy *policy);

/*
 * The running thread is not on a core of its policy: it is placed again soon, also if no other
 * thread wants the CPU. In `tick`.
 */
void xk_displace(void);
/* Nothing of it is left when this returns. Policies have no threads. May sleep. */
void xk_displace_exit(void);
void xk_displace_init(void);

#endif /* _XK_SCHED_POLICY_CPUS_H */
