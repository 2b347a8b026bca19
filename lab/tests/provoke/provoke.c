// SPDX-License-Identifier: GPL-2.0-only
/*
 * Causes a kernel warning or oops, to show that the lab detects it.
 *
 * In: the parameter "what": warn, oops, or nothing.
 */

#include <linux/bug.h>
#include <linux/compiler.h>
#include <linux/module.h>
#include <linux/string.h>

static char *what = "nothing";
module_param(what, charp, 0444);
MODULE_PARM_DESC(what, "warn, oops or nothing");

static int __init provoke_init(void)
{
	if (!strcmp(what, "warn"))
		WARN(1, "provoked by the lab's tests\n");
	else if (!strcmp(what, "oops"))
		WRITE_ONCE(*(int *)4, 0);
	return 0;
}

static void __exit provoke_exit(void)
{
}

module_init(provoke_init);
module_exit(provoke_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Makes the kernel complain on purpose");
