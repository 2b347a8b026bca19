// SPDX-License-Identifier: GPL-2.0-only
/*
 * The structure of each thread of the system. It exists from the fork to the exit of the thread,
 * whichever class it is in, so that nothing needs to be allocated when the thread chooses a policy.
 */
#include <linux/hashtable.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "model/thread.h"

#define BUCKET_BITS 10

DEFINE_RAW_SPINLOCK(xk_threads_lock);
static DEFINE_HASHTABLE(threads, BUCKET_BITS);
static struct kmem_cache *cache;

int xk_threads_init(void)
{
	cache = KMEM_CACHE(xk_thread, SLAB_HWCACHE_ALIGN);
	return cache ? 0 : -ENOMEM;
}

void xk_threads_exit(void)
{
	rcu_barrier();
	kmem_cache_destroy(cache);
}

struct xk_thread *xk_thread_find(const struct task_struct *task)
{
	struct xk_thread *thread;

	hash_for_each_possible_rcu(threads, thread, hash, (unsigned long)task,
				   lockdep_is_held(&xk_threads_lock))
		if (thread->task == task)
			return thread;
	return NULL;
}

int xk_thread_add(struct task_struct *task, struct task_struct *parent)
{
	struct xk_thread *thread = kmem_cache_zalloc(cache, GFP_KERNEL), *model;
	unsigned long flags;

	if (!thread)
		return -ENOMEM;
	thread->task = task;
	thread->core = task_cpu(task);
	thread->state = XK_TERMINATED;
	raw_spin_lock_irqsave(&xk_threads_lock, flags);
	model = parent ? xk_thread_find(parent) : NULL;
	if (model)
		thread->choice = model->choice;
	hash_add_rcu(threads, &thread->hash, (unsigned long)task);
	raw_spin_unlock_irqrestore(&xk_threads_lock, flags);
	return 0;
}

static void free_thread(struct rcu_head *rcu)
{
	kmem_cache_free(cache, container_of(rcu, struct xk_thread, rcu));
}

void xk_thread_remove(struct task_struct *task)
{
	struct xk_thread *thread;
	unsigned long flags;

	raw_spin_lock_irqsave(&xk_threads_lock, flags);
	thread = xk_thread_find(task);
	if (thread)
		hash_del_rcu(&thread->hash);
	raw_spin_unlock_irqrestore(&xk_threads_lock, flags);
	if (thread)
		call_rcu(&thread->rcu, free_thread);
}

void xk_threads_visit(bool (*visit)(struct xk_thread *thread, void *data), void *data)
{
	struct xk_thread *thread;
	unsigned long flags;
	int bucket;

	raw_spin_lock_irqsave(&xk_threads_lock, flags);
	hash_for_each(threads, bucket, thread, hash)
		if (visit(thread, data))
			break;
	raw_spin_unlock_irqrestore(&xk_threads_lock, flags);
}

struct xk_thread *xk_thread_enter(struct task_struct *task)
{
	struct xk_thread *thread;

	rcu_read_lock();
	thread = xk_thread_find(task);
	rcu_read_unlock();
	task->scx.dsq_vtime = (unsigned long)thread;
	return thread;
}
