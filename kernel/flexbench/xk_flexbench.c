// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data structures of bpf/flex as part of a kernel module, for comparison with extensions.
 *
 * Reading /proc/xk_flexbench executes all operations once and returns a line for each: structure,
 * operation, turns, and nanoseconds of all turns. /proc/xk_flexfuzz executes the
 * operations that are written to it; its content is the answers to the last ones.
 */
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "../../bench/flex/operations.h"
#include "../../bench/flex/structures.h"

#define NAME "xk_flexbench"
#define FUZZ "xk_flexfuzz"
/* Operations that are written at once. */
#define MOST 512

/* Users take turns. */
static DEFINE_MUTEX(lock);
static struct xk_bench bench;
static struct xk_structures structures;
static struct xk_structures_asked asked[MOST];
static struct xk_structures_answered answered[MOST];
static size_t answers;

static int show(struct seq_file *file, void *unused)
{
	u64 turn, turns, start;
	int number;

	mutex_lock(&lock);
	for (number = 0; number < XK_BENCH_OPERATIONS; number++) {
		turns = xk_bench_operations[number].turns;
		start = ktime_get_ns();
		for (turn = 0; turn < turns; turn++)
			xk_bench_operations[number].turn(&bench, turn);
		seq_printf(file, "%s %s %llu %llu\n", xk_bench_operations[number].structure,
			   xk_bench_operations[number].operation, turns, ktime_get_ns() - start);
	}
	mutex_unlock(&lock);
	return 0;
}

static ssize_t fuzz_write(struct file *file, const char __user *from, size_t bytes, loff_t *at)
{
	size_t number = bytes / sizeof(asked[0]), i;

	if (number > MOST || bytes % sizeof(asked[0]))
		return -EINVAL;
	mutex_lock(&lock);
	if (copy_from_user(asked, from, bytes)) {
		mutex_unlock(&lock);
		return -EFAULT;
	}
	for (i = 0; i < number; i++) {
		answered[i].done = xk_structures_turn(&structures, asked[i].operation,
						      asked[i].key, asked[i].value);
		answered[i].answer = structures.answer;
	}
	answers = number;
	mutex_unlock(&lock);
	return bytes;
}

static ssize_t fuzz_read(struct file *file, char __user *to, size_t bytes, loff_t *at)
{
	ssize_t done;

	mutex_lock(&lock);
	done = simple_read_from_buffer(to, bytes, at, answered, answers * sizeof(answered[0]));
	mutex_unlock(&lock);
	return done;
}

static const struct proc_ops fuzz = {
	.proc_read = fuzz_read,
	.proc_write = fuzz_write,
	.proc_lseek = default_llseek,
};

static int __init xk_flexbench_init(void)
{
	if (!xk_bench_begin(&bench) || !proc_create_single(NAME, 0400, NULL, show)) {
		xk_bench_end(&bench);
		return -ENOMEM;
	}
	if (!proc_create(FUZZ, 0600, NULL, &fuzz)) {
		remove_proc_entry(NAME, NULL);
		xk_bench_end(&bench);
		return -ENOMEM;
	}
	return 0;
}

/* The last users have removed all items, freed all objects, and ended the structures. */
static void __exit xk_flexbench_exit(void)
{
	remove_proc_entry(FUZZ, NULL);
	remove_proc_entry(NAME, NULL);
	xk_bench_end(&bench);
}

module_init(xk_flexbench_init);
module_exit(xk_flexbench_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("The data structures of bpf/flex in a module, for comparison");
