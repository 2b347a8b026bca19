// SPDX-License-Identifier: GPL-2.0-only
/* The policy fifo, several times under the names fifo1, fifo2, ..: for tests and benchmarks. */
#include "xk_sched.h"

/* The file is a module; here it is registered under other names. */
#undef module_xk_policy
#define module_xk_policy(policy) static_assert(sizeof(policy) > 0)
#include "policies/fifo.c"

#define MAX_POLICIES 16

static unsigned int number = 8;
module_param(number, uint, 0444);
MODULE_PARM_DESC(number, "how many, at most 16");

static struct xk_sched_policy policies[MAX_POLICIES];
static char names[MAX_POLICIES][8];

static int __init xk_sched_many_init(void)
{
	unsigned int i;
	int ret = 0;

	if (number > MAX_POLICIES)
		return -EINVAL;
	for (i = 0; i < number && !ret; i++) {
		snprintf(names[i], sizeof(names[i]), "fifo%u", i + 1);
		policies[i] = fifo_policy;
		policies[i].name = names[i];
		ret = xk_sched_register(&policies[i]);
	}
	/* The last one was not registered. */
	for (i--; ret && i--;)
		xk_sched_unregister(&policies[i]);
	return ret;
}

static void __exit xk_sched_many_exit(void)
{
	unsigned int i;

	for (i = 0; i < number; i++)
		xk_sched_unregister(&policies[i]);
}

module_init(xk_sched_many_init);
module_exit(xk_sched_many_exit);
