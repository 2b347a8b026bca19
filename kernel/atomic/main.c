// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that detect a change of a constant in the middle of what they do.
 *
 * Reading /proc/xk_atomic prints one line for each span: rounds, violations, violations in which
 * one value was the default, and the two values of the last violation; then the constant that
 * "hold" holds. Writing to it takes one command:
 *
 *	start N		N threads
 *	stop		no threads
 *	NAME N		an option, see struct xk_atomic_options
 *	hold MS		the writer itself stays in a span, for at most this time
 *	hide MS		the same, with an unreadable stack; 0: in no span, until released
 *	exit		a thread enters a span, and ends in it when it is released
 *	detain 0|1	whether threads named xk_detained enter a span while they exit
 *	stall 0|1|2	whether a thread named xk_stalled is held when it registers a probe,
 *			or when xk.ko arms the module that it loads
 *	register N	N threads that register kprobes all the time
 *	probe 0|1	whether there is a kprobe at xk_target_value()
 *	release		releases held threads
 *	ambush US	NMIs of this duration while xk.ko stops the machine; 0: none
 *	waylay US	the same whenever the kernel writes text
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/uaccess.h>

#include "atomic.h"

struct xk_atomic_options xk_atomic_options = {
	.spans = BIT(XK_ATOMIC_ELSEWHERE) - 1,
	.inside = 16,
	.depth = 4,
	.sleep = 500,
	.pause = 1,
};

static const struct {
	const char *name;
	unsigned int *value;
} options[] = {
	{ "spans", &xk_atomic_options.spans },
	{ "inside", &xk_atomic_options.inside },
	{ "depth", &xk_atomic_options.depth },
	{ "sleep", &xk_atomic_options.sleep },
	{ "work", &xk_atomic_options.work },
	{ "pause", &xk_atomic_options.pause },
};

/* Protects the threads, and the counts of processes. */
static DEFINE_MUTEX(lock);
static struct xk_atomic_count held;

void xk_atomic_judge(struct xk_atomic_count *count, int first, int second)
{
	WRITE_ONCE(count->rounds, count->rounds + 1);
	if (likely(first == second))
		return;
	count->last[0] = first;
	count->last[1] = second;
	if (first == XK_ATOMIC_DEFAULT || second == XK_ATOMIC_DEFAULT)
		WRITE_ONCE(count->defaults, count->defaults + 1);
	WRITE_ONCE(count->violations, count->violations + 1);
}

static int show(struct seq_file *file, void *unused)
{
	struct xk_atomic_count sums[XK_ATOMIC_SPANS] = {};
	unsigned int i;

	mutex_lock(&lock);
	xk_atomic_sum(sums);
	sums[XK_ATOMIC_HOLD] = held;
	xk_atomic_ambush_sum(&sums[XK_ATOMIC_STOP]);
	seq_printf(file, "threads %u\n", xk_atomic_running());
	seq_printf(file, "detained %u\n", xk_atomic_detained());
	seq_printf(file, "stalled %u\n", xk_atomic_stalled());
	mutex_unlock(&lock);
	for (i = 0; i < XK_ATOMIC_SPANS; i++)
		seq_printf(file, "%s %llu %llu %llu %d %d\n", xk_atomic_names[i],
			   sums[i].rounds, sums[i].violations, sums[i].defaults,
			   sums[i].last[0], sums[i].last[1]);
	seq_printf(file, "value %d\n", xk_atomic_value());
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static int hold_once(unsigned int ms, int (*hold)(unsigned int ms, int values[2]))
{
	int values[2], ret;

	ret = hold(ms, values);
	mutex_lock(&lock);
	xk_atomic_judge(&held, values[0], values[1]);
	/* Stored even if they agree, because tests read the value. */
	memcpy(held.last, values, sizeof(held.last));
	mutex_unlock(&lock);
	return ret;
}

int xk_atomic_hold_once(unsigned int ms)
{
	return hold_once(ms, xk_atomic_hold);
}

static int hide(unsigned int ms, int values[2])
{
	return xk_atomic_unreadable(ms, values);
}

static int set(const char *name, unsigned int value)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(options); i++) {
		if (strcmp(options[i].name, name))
			continue;
		WRITE_ONCE(*options[i].value, value);
		return 0;
	}
	return -EINVAL;
}

static int command(const char *text)
{
	unsigned int number = 0;
	char word[16];
	int ret;

	if (sscanf(text, "%15s %u", word, &number) < 1)
		return -EINVAL;
	if (!strcmp(word, "hold"))
		return xk_atomic_hold_once(number);
	if (!strcmp(word, "hide"))
		return hold_once(number, hide);
	if (!strcmp(word, "exit"))
		return xk_atomic_leave();
	if (!strcmp(word, "release")) {
		xk_atomic_release();
		return 0;
	}
	mutex_lock(&lock);
	if (!strcmp(word, "start")) {
		ret = number ? xk_atomic_start(number) : -EINVAL;
	} else if (!strcmp(word, "stop")) {
		xk_atomic_stop();
		ret = 0;
	} else if (!strcmp(word, "ambush")) {
		ret = xk_atomic_ambush(number, false);
	} else if (!strcmp(word, "detain")) {
		ret = xk_atomic_detain(number);
	} else if (!strcmp(word, "stall")) {
		ret = number > XK_ATOMIC_STALL_ARMS ? -EINVAL : xk_atomic_stall(number);
	} else if (!strcmp(word, "register")) {
		ret = xk_atomic_register(number);
	} else if (!strcmp(word, "probe")) {
		ret = xk_atomic_probe(number);
	} else if (!strcmp(word, "waylay")) {
		ret = xk_atomic_ambush(number, true);
	} else {
		ret = set(word, number);
	}
	mutex_unlock(&lock);
	return ret;
}

static ssize_t write(struct file *file, const char __user *text, size_t len, loff_t *at)
{
	char words[32] = {};
	int ret;

	if (len >= sizeof(words))
		return -EINVAL;
	if (copy_from_user(words, text, len))
		return -EFAULT;
	ret = command(words);
	return ret ? ret : len;
}

static const struct proc_ops atomic_ops = {
	.proc_open = open,
	.proc_read = seq_read,
	.proc_write = write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int __init atomic_init(void)
{
	int ret = xk_atomic_spans_init();

	if (ret)
		return ret;
	if (proc_create("xk_atomic", 0600, NULL, &atomic_ops))
		return 0;
	xk_atomic_spans_exit();
	return -ENOMEM;
}

/* No process holds any more: removing the proc entry waits for them. */
static void __exit atomic_exit(void)
{
	xk_atomic_release();
	remove_proc_entry("xk_atomic", NULL);
	xk_atomic_ambush(0, false);
	xk_atomic_detain(false);
	xk_atomic_stall(XK_ATOMIC_STALL_NOWHERE);
	xk_atomic_probe(false);
	xk_atomic_register(0);
	while (xk_atomic_detained())
		msleep(20);
	xk_atomic_stop();
	xk_atomic_spans_exit();
}

module_init(atomic_init);
module_exit(atomic_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Threads that detect a constant that changes while they use it");
