/* SPDX-License-Identifier: GPL-2.0-only */
/* The CPUs of policies as text: cpus.c. */
#ifndef _XK_SCHED_CONTROL_CPUS_H
#define _XK_SCHED_CONTROL_CPUS_H

#include "uapi/xk_sched.h"
#include "xk_sched.h"

struct xk_error;

/* May sleep. */
int xk_policy_set_cpus(const struct xk_sched_cpus *request, struct xk_error *error);

/* With the lock of the policies. */
void xk_policy_describe_cpus(const struct xk_sched_policy *policy,
			     struct xk_sched_policy_info *info);

#endif /* _XK_SCHED_CONTROL_CPUS_H */
