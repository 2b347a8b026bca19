// SPDX-License-Identifier: GPL-2.0-only
/*
 * A livepatch of a function that has a site. While it is enabled, xk_atomic_value() returns -1,
 * independently of the constant.
 */
#include <linux/livepatch.h>
#include <linux/module.h>

static int livepatch_value(void)
{
	return -1;
}

static struct klp_func funcs[] = {
	{
		.old_name = "xk_atomic_value",
		.new_func = livepatch_value,
	}, {}
};

static struct klp_object objects[] = {
	{
		.name = "xk_atomic",
		.funcs = funcs,
	}, {}
};

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = objects,
};

static int __init redirect_init(void)
{
	return klp_enable_patch(&patch);
}

static void __exit redirect_exit(void)
{
}

module_init(redirect_init);
module_exit(redirect_exit);

MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
MODULE_DESCRIPTION("A livepatch of a function that has a site");
