// SPDX-License-Identifier: GPL-2.0-only
/* The policy weighted as weighted2: a new version of it, for tests of replacement. */
#include "xk_sched.h"

/* The file is a module; here it is registered under another name. */
#undef module_xk_policy
#define module_xk_policy(policy) static_assert(sizeof(policy) > 0)
#include "policies/weighted.c"

static int __init xk_sched_weighted2_init(void)
{
	weighted_policy.name = "weighted2";
	return xk_sched_register(&weighted_policy);
}

static void __exit xk_sched_weighted2_exit(void)
{
	xk_sched_unregister(&weighted_policy);
}

module_init(xk_sched_weighted2_init);
module_exit(xk_sched_weighted2_exit);
