// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data structures of bpf/flex as part of a kernel module, for comparison with extensions. Who
 * reads /proc/xk_flexbench has all operations executed once, and reads a line of each: structure,
 * operation, turns, and nanoseconds of all of them.
 */
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "../../bench/flex/operations.h"

#define NAME "xk_flexbench"

/* Readers take turns. */
static DEFINE_MUTEX(lock);
static struct xk_bench bench;

static int show(struct seq_file *file, void *unused)
{
	u64 turn, turns, start;
	int number;

	mutex_lock(&lock);
	for (number = 0; number < XK_BENCH_OPERATIONS; number++) {
		turns = xk_bench_operations[number].turns;
		start = ktime_get_ns();
		for (turn = 0; turn < turns; turn++)
			xk_bench_turn(&bench, number, turn);
		seq_printf(file, "%s %s %llu %llu\n", xk_bench_operations[number].structure,
			   xk_bench_operations[number].operation, turns, ktime_get_ns() - start);
	}
	mutex_unlock(&lock);
	return 0;
}

static int __init xk_flexbench_init(void)
{
	if (!xk_bench_begin(&bench) || !proc_create_single(NAME, 0400, NULL, show)) {
		xk_free(bench.hash);
		xk_free(bench.list);
		return -ENOMEM;
	}
	return 0;
}

/* All items were removed and all objects freed by the last reader. */
static void __exit xk_flexbench_exit(void)
{
	remove_proc_entry(NAME, NULL);
	xk_free(bench.hash);
	xk_free(bench.list);
}

module_init(xk_flexbench_init);
module_exit(xk_flexbench_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("The data structures of bpf/flex in a module, for comparison");
