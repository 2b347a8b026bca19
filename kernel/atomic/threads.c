// SPDX-License-Identifier: GPL-2.0-only
/* The threads: started together, stopped together, counted one by one. */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "atomic.h"

static struct xk_atomic_thread **threads;
static unsigned int nr_threads;

/* Counts of threads that ended. */
static struct xk_atomic_count past[XK_ATOMIC_SPANS];

static void pause(void)
{
	unsigned int us = READ_ONCE(xk_atomic_options.pause);

	usleep_range(us, us + us / 4 + 1);
}

static int work(void *data)
{
	struct xk_atomic_thread *thread = data;

	while (!kthread_should_stop()) {
		xk_atomic_round(thread);
		pause();
	}
	return 0;
}

static void add(struct xk_atomic_count *sums, const struct xk_atomic_count *counts)
{
	unsigned int i;

	for (i = 0; i < XK_ATOMIC_SPANS; i++) {
		sums[i].rounds += READ_ONCE(counts[i].rounds);
		sums[i].violations += READ_ONCE(counts[i].violations);
		sums[i].defaults += READ_ONCE(counts[i].defaults);
		if (READ_ONCE(counts[i].violations))
			memcpy(sums[i].last, counts[i].last, sizeof(sums[i].last));
	}
}

void xk_atomic_sum(struct xk_atomic_count *sums)
{
	unsigned int i;

	add(sums, past);
	for (i = 0; i < nr_threads; i++)
		add(sums, threads[i]->counts);
}

unsigned int xk_atomic_running(void)
{
	return nr_threads;
}

static struct xk_atomic_thread *create(unsigned int number)
{
	struct xk_atomic_thread *thread;
	struct task_struct *task;

	thread = kzalloc(sizeof(*thread), GFP_KERNEL);
	if (!thread)
		return ERR_PTR(-ENOMEM);
	prandom_seed_state(&thread->random, number + 1);
	xk_atomic_prepare(thread);
	task = kthread_run(work, thread, "xk_atomic/%u", number);
	if (IS_ERR(task)) {
		kfree(thread);
		return ERR_CAST(task);
	}
	thread->task = task;
	return thread;
}

int xk_atomic_start(unsigned int nr)
{
	if (nr_threads)
		return -EBUSY;
	threads = kcalloc(nr, sizeof(*threads), GFP_KERNEL);
	if (!threads)
		return -ENOMEM;
	for (; nr_threads < nr; nr_threads++) {
		struct xk_atomic_thread *thread = create(nr_threads);

		if (IS_ERR(thread)) {
			xk_atomic_stop();
			return PTR_ERR(thread);
		}
		threads[nr_threads] = thread;
	}
	return 0;
}

void xk_atomic_stop(void)
{
	unsigned int i;

	for (i = 0; i < nr_threads; i++) {
		kthread_stop(threads[i]->task);
		xk_atomic_forget(threads[i]);
		add(past, threads[i]->counts);
		kfree(threads[i]);
	}
	nr_threads = 0;
	kfree(threads);
	threads = NULL;
}

static int leave(void *unused)
{
	xk_atomic_exit_inside();
	module_put(THIS_MODULE);
	return 0;
}

/* Starts a thread that ends inside. It holds the module until then. */
int xk_atomic_leave(void)
{
	struct task_struct *task;

	__module_get(THIS_MODULE);
	task = kthread_run(leave, NULL, "xk_atomic_exit");
	if (!IS_ERR(task))
		return 0;
	module_put(THIS_MODULE);
	return PTR_ERR(task);
}
