// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module to practise on: reading /proc/xk_target calls every function of
 * target_text.S and prints what it returned, one per line. Writing "bad" makes
 * the pointer that xk_target_memory() does not use a bad one, "good" heals it;
 * a number goes into the global variable, "limit" and a number into a limit. "fixed"
 * and a number would go into a constant, if it were not sealed.
 */
#include <linux/module.h>
#include <linux/pgtable.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "target.h"

int xk_target_bias = 40;
int xk_target_biases[2] = { 1000, 2000 };
DEFINE_PER_CPU(int, xk_target_cpu_bias);

struct xk_target_limits xk_target_limits = {
	.quad = 32, .word = 32, .half = 32, .byte = 32,
};

int xk_target_sealed __ro_after_init = 32;
const int xk_target_fixed = 32;

/* What the module saw when it was initialised. */
static int value_at_init;
static u32 limit_at_init;

static int *other;
static int healthy = 40;

/* Unlike the functions in assembly, one that other tracers may probe. */
static noinline int xk_target_traced(int x)
{
	return x * 32;
}

static void show_limits(struct seq_file *file)
{
	seq_printf(file, "limits %llu %u %u %u\n", READ_ONCE(xk_target_limits.quad),
		   READ_ONCE(xk_target_limits.word), READ_ONCE(xk_target_limits.half),
		   READ_ONCE(xk_target_limits.byte));
	seq_printf(file, "sealed %d\n", READ_ONCE(xk_target_sealed));
	seq_printf(file, "fixed %d\n", READ_ONCE(xk_target_fixed));
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
	seq_printf(file, "global %d\n", xk_target_global());
	seq_printf(file, "above %d\n", xk_target_above());
	seq_printf(file, "array %d %d\n", xk_target_array(0), xk_target_array(1));
	preempt_disable();
	seq_printf(file, "cpu%d %d\n", smp_processor_id(), xk_target_per_cpu());
	preempt_enable();
	seq_printf(file, "twins %d %d\n", xk_target_twin_here(), xk_target_twin_there());
	seq_printf(file, "many %d\n", xk_target_many());
	seq_printf(file, "init %d %u\n", value_at_init, limit_at_init);
	show_limits(file);
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static int write_fixed(int number)
{
	__put_kernel_nofault(&xk_target_fixed, &number, int, fault);
	return 0;
fault:
	return -EFAULT;
}

static ssize_t write(struct file *file, const char __user *text, size_t len, loff_t *at)
{
	char words[32] = {};
	int number;

	if (len >= sizeof(words))
		return -EINVAL;
	if (copy_from_user(words, text, len))
		return -EFAULT;
	if (sscanf(words, "fixed %d", &number) == 1)
		return write_fixed(number) ?: len;
	if (sscanf(words, "limit %d", &number) == 1)
		WRITE_ONCE(xk_target_limits.word, number);
	else if (!kstrtoint(words, 0, &number))
		xk_target_bias = number;
	else
		/* A kernel address where nothing is ever mapped. */
		other = words[0] == 'b' ? (int *)GUARD_HOLE_BASE_ADDR : &healthy;
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
	int cpu;

	other = &healthy;
	for_each_possible_cpu(cpu)
		per_cpu(xk_target_cpu_bias, cpu) = 100 * (cpu + 1);
	value_at_init = xk_target_value();
	limit_at_init = READ_ONCE(xk_target_limits.word);
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
