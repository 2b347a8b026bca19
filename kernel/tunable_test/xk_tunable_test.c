// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module that describes its parameters with xk_tunable.h: an example, and the subject of tests.
 * Its queue and its cache are fictitious. A score shows how well the parameters of the queue fit.
 * The larger the cache, the fewer lookups miss it.
 *
 * Reading /proc/xk_tunable_test prints every variable, one per line. Writing "NAME VALUE" sets one,
 * as someone else might. "stubborn N": the next N calls of set_depth() fail. "round 1": the setter
 * of width rounds down to an even number. "load 1": set_depth() makes the kernel load a module, as
 * setters of drivers may. "serve N" calls xk_tunable_test_serve() N times. Each call takes "pause"
 * microseconds, divided by size. "longest" and "spent" report how long the calls took, as measured
 * here.
 */
#include <linux/kmod.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/processor.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "../tunable/xk_tunable.h"

static int depth = 4;
static int policy;
static int batch = 8;
static int width = 2;
static int size = 1;
static int stubborn;
static int round;
static int load;
static int pause;
static u64 longest;		/* longest call of the last "serve", in ns */
static u64 spent;		/* all calls of the last "serve", in ns */
static int sets;		/* number of calls of set_depth() */

static DEFINE_MUTEX(counting);
static u64 counted_until;	/* ns */
static u64 lookups;
static u64 misses;

/* The queue. */

static int get_depth(const struct xk_tunable *tunable, s64 *value)
{
	*value = READ_ONCE(depth);
	return 0;
}

static int set_depth(const struct xk_tunable *tunable, s64 value)
{
	sets++;
	if (stubborn) {
		stubborn--;
		return -EBUSY;
	}
	if (load)
		request_module("dummy");
	WRITE_ONCE(depth, value);
	return 0;
}

XK_TUNABLE(queue, depth, .steps = XK_TUNABLE_EXPONENTIAL, .min = 1, .max = 64, .step = 2,
	   .default_value = 4, .get = get_depth, .set = set_depth);

enum { FIFO, BATCH, ADAPTIVE };

static const char *const policies[] = { "fifo", "batch", "adaptive" };

XK_TUNABLE_VARIABLE(policy, policy);

XK_TUNABLE(queue, policy, .steps = XK_TUNABLE_CHOICE, .choices = policies,
	   .nr_choices = ARRAY_SIZE(policies), .default_value = FIFO,
	   .get = policy_get, .set = policy_set);

static int get_batch(const struct xk_tunable *tunable, s64 *value)
{
	*value = READ_ONCE(batch);
	return 0;
}

static int set_batch(const struct xk_tunable *tunable, s64 value)
{
	if (value == 20)
		return -EINVAL;
	WRITE_ONCE(batch, value);
	return 0;
}

XK_TUNABLE(queue, batch, .steps = XK_TUNABLE_LINEAR, .min = 4, .max = 32, .step = 4,
	   .default_value = 8, .settle_ms = 10, .only_if = "policy", .only_if_value = BATCH,
	   .get = get_batch, .set = set_batch);

static int get_width(const struct xk_tunable *tunable, s64 *value)
{
	*value = READ_ONCE(width);
	return 0;
}

static int set_width(const struct xk_tunable *tunable, s64 value)
{
	WRITE_ONCE(width, round ? value & ~1 : value);
	return 0;
}

XK_TUNABLE(queue, width, .flags = XK_TUNABLE_REVERT, .min = 1, .max = 4, .step = 1,
	   .default_value = 2, .get = get_width, .set = set_width);

/* Best with depth 16, batches of 24, and the maximum width. */
static u64 score(void)
{
	int points = 1000 - 100 * abs(ilog2(depth) - 4) + 50 * width;

	if (policy == BATCH)
		points += 600 - 10 * abs(batch - 24);
	else if (policy == ADAPTIVE)
		points += 300;
	return points;
}

static int get_score(const struct xk_meter *meter, u64 *of, u64 *per)
{
	*of = score();
	return 0;
}

XK_TARGET(queue, score, .get = get_score);

/* The number of lookups depends only on time, not on the load of the machine. */
static void count(void)
{
	u64 now, new;

	mutex_lock(&counting);
	now = ktime_get_ns();
	new = (now - counted_until) / 100;
	counted_until = now;
	lookups += new;
	misses += new / size;
	mutex_unlock(&counting);
}

static int get_waits(const struct xk_meter *meter, u64 *of, u64 *per)
{
	count();
	*of = lookups / 10;
	*per = lookups;
	return 0;
}

XK_SENSOR(queue, waits, .flags = XK_METER_PER, .limit = 200, .get = get_waits);
XK_BOTTLENECK(queue, queue_full, .flags = XK_METER_PER, .limit = 500, .get = get_waits);

/* The cache. */

static int get_size(const struct xk_tunable *tunable, s64 *value)
{
	*value = READ_ONCE(size);
	return 0;
}

static int set_size(const struct xk_tunable *tunable, s64 value)
{
	/* Count the time until now with the previous size. */
	count();
	WRITE_ONCE(size, value);
	return 0;
}

XK_TUNABLE(cache, size, .min = 1, .max = 4, .step = 1, .default_value = 1,
	   .get = get_size, .set = set_size);

static int get_misses(const struct xk_meter *meter, u64 *of, u64 *per)
{
	count();
	*of = misses;
	*per = lookups;
	return 0;
}

XK_TARGET(cache, missed, .flags = XK_METER_RATE | XK_METER_MINIMISE, .get = get_misses);
XK_BOTTLENECK(cache, thrashing, .flags = XK_METER_PER, .limit = 500, .get = get_misses);

/* Its run time must be visible from outside. */
static noinline void xk_tunable_test_serve(void)
{
	u64 end = ktime_get_ns() + pause * NSEC_PER_USEC / size;

	/* Not udelay(), which counts loops: they run faster if the host is less busy. */
	while (ktime_get_ns() < end)
		cpu_relax();
}

static void serve(int calls)
{
	u64 start = ktime_get_ns(), before = start, now;

	longest = 0;
	while (calls-- > 0) {
		xk_tunable_test_serve();
		now = ktime_get_ns();
		longest = max(longest, now - before);
		before = now;
	}
	spent = before - start;
}

/* Data for the tests. */

static const struct {
	const char *name;
	int *variable;
} variables[] = {
	{ "depth", &depth },
	{ "policy", &policy },
	{ "batch", &batch },
	{ "width", &width },
	{ "size", &size },
	{ "stubborn", &stubborn },
	{ "round", &round },
	{ "load", &load },
	{ "pause", &pause },
	{ "sets", &sets },
};

static int show(struct seq_file *seq, void *unused)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(variables); i++)
		seq_printf(seq, "%s %d\n", variables[i].name, READ_ONCE(*variables[i].variable));
	seq_printf(seq, "score %llu\nlongest %llu\nspent %llu\n", score(), longest, spent);
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static ssize_t write(struct file *file, const char __user *user, size_t len, loff_t *offset)
{
	char text[64] = {}, name[32];
	int value;
	size_t i;

	if (len >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, user, len))
		return -EFAULT;
	if (sscanf(text, "%31s %d", name, &value) != 2)
		return -EINVAL;
	if (!strcmp(name, "serve")) {
		serve(value);
		return len;
	}
	for (i = 0; i < ARRAY_SIZE(variables); i++) {
		if (strcmp(variables[i].name, name))
			continue;
		WRITE_ONCE(*variables[i].variable, value);
		return len;
	}
	return -ENOENT;
}

static const struct proc_ops operations = {
	.proc_open = open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
	.proc_write = write,
};

static int __init xk_tunable_test_init(void)
{
	counted_until = ktime_get_ns();
	if (!proc_create("xk_tunable_test", 0600, NULL, &operations))
		return -ENOMEM;
	return 0;
}

static void __exit xk_tunable_test_exit(void)
{
	remove_proc_entry("xk_tunable_test", NULL);
}

module_init(xk_tunable_test_init);
module_exit(xk_tunable_test_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Parameters described for xk tune: an example, and a test");
