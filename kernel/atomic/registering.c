// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that do nothing but register kprobes. Each attempt is refused, because its address is in
 * the middle of an instruction. Kprobes notice this after they have taken kprobe_mutex, so nearly
 * always one of the threads is in register_kprobe(), and the others wait there.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>

#include "atomic.h"

#define MAX_THREADS 8

static struct task_struct *threads[MAX_THREADS];
static unsigned int nr_threads;

static int registers(void *unused)
{
	while (!kthread_should_stop()) {
		struct kprobe kprobe = { .addr = (kprobe_opcode_t *)msleep + 1 };

		if (!WARN_ON_ONCE(!register_kprobe(&kprobe)))
			continue;
		unregister_kprobe(&kprobe);
	}
	return 0;
}

static void stop(void)
{
	while (nr_threads)
		kthread_stop(threads[--nr_threads]);
}

int xk_atomic_register(unsigned int nr)
{
	struct task_struct *task;

	if (nr > MAX_THREADS)
		return -EINVAL;
	stop();
	while (nr_threads < nr) {
		task = kthread_run(registers, NULL, "xk_registers/%u", nr_threads);
		if (IS_ERR(task)) {
			stop();
			return PTR_ERR(task);
		}
		threads[nr_threads++] = task;
	}
	return 0;
}
