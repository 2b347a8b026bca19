// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module to practise on: reading /proc/xk_target calls every function of
 * target_text.S and prints what it returned, one per line. Writing "bad" makes
 * the pointer that xk_target_memory() does not use a bad one, "good" heals it.
 */
#include <linux/module.h>
#include <linux/pgtable.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "target.h"

static int *other;
static int healthy = 40;

/* Unlike the functions in assembly, one that other tracers may probe. */
static noinline int xk_target_traced(int x)
{
	return x * 32;
}

static int show(struct seq_file *file, void *unused)
{
	int forty = 40, stored = 0;

	seq_printf(file, "value %d\n", xk_target_value());
	seq_printf(file, "twice %d\n", xk_target_twice());
	seq_printf(file, "compare %d\n", xk_target_compare(40));
	seq_printf(file, "memory %d\n", xk_target_memory(&forty, other));
	xk_target_store(&stored);
	seq_printf(file, "store %d\n", stored);
	seq_printf(file, "select %d %d\n", xk_target_select(1), xk_target_select(0));
	seq_printf(file, "traced %d\n", xk_target_traced(stored));
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static ssize_t write(struct file *file, const char __user *text, size_t len, loff_t *at)
{
	char first;

	if (!len)
		return 0;
	if (get_user(first, text))
		return -EFAULT;
	/* A kernel address where nothing is ever mapped. */
	other = first == 'b' ? (int *)GUARD_HOLE_BASE_ADDR : &healthy;
	return len;
}

static const struct proc_ops target_ops = {
	.proc_open = open,
	.proc_read = seq_read,
	.proc_write = write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int __init target_init(void)
{
	other = &healthy;
	return proc_create("xk_target", 0600, NULL, &target_ops) ? 0 : -ENOMEM;
}

static void __exit target_exit(void)
{
	remove_proc_entry("xk_target", NULL);
}

module_init(target_init);
module_exit(target_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Constants to practise on");
