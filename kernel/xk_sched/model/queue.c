// SPDX-License-Identifier: GPL-2.0-only
/* Queues of ready threads. */
#include <linux/cpumask.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/rbtree.h>

#include "model/core.h"
#include "model/count.h"
#include "model/queue.h"

/* It must not be freed while threads are in it. */
static bool lives_long(const struct xk_queue *queue, struct xk_sched_policy *policy, int core)
{
	unsigned long own = (unsigned long)xk_core_data(policy, core);
	unsigned long start = (unsigned long)queue, end = start + sizeof(*queue);

	return (start >= own && end <= own + policy->core_size) ||
	       (within_module_core(start, policy->owner) &&
		within_module_core(end - 1, policy->owner));
}

void xk_queue_init(struct xk_queue *queue, struct xk_sched_policy *policy, int core,
		   enum xk_queue_type type,
		   bool (*before)(const struct xk_thread *left, const struct xk_thread *right))
{
	/* Threads may be in it. */
	if (!policy->initialising)
		return;
	if (core < 0 || core >= nr_cpu_ids || !cpu_possible(core) ||
	    !lives_long(queue, policy, core)) {
		policy->misplaced = true;
		return;
	}
	*queue = (struct xk_queue){
		.policy = policy,
		.core = core,
		/* Without an order, insertion decides. */
		.type = before ? type : XK_FIFO,
		.serial = ++policy->nr_queues,
		.before = before,
	};
	if (queue->type == XK_RBTREE)
		queue->tree = RB_ROOT_CACHED;
	else
		INIT_LIST_HEAD(&queue->list);
}
EXPORT_SYMBOL_GPL(xk_queue_init);

struct xk_thread *xk_queue_first(struct xk_queue *queue)
{
	struct rb_node *node;

	if (queue->type != XK_RBTREE)
		return list_first_entry_or_null(&queue->list, struct xk_thread, node);
	node = rb_first_cached(&queue->tree);
	return node ? rb_entry(node, struct xk_thread, rb) : NULL;
}
EXPORT_SYMBOL_GPL(xk_queue_first);

struct xk_thread *xk_queue_next(struct xk_queue *queue, struct xk_thread *thread)
{
	struct rb_node *node;

	if (queue->type != XK_RBTREE)
		return list_is_last(&thread->node, &queue->list) ?
			NULL : list_next_entry(thread, node);
	node = rb_next(&thread->rb);
	return node ? rb_entry(node, struct xk_thread, rb) : NULL;
}

static void insert_tree(struct xk_queue *queue, struct xk_thread *thread)
{
	struct rb_node **link = &queue->tree.rb_root.rb_node, *parent = NULL;
	bool first = true;

	while (*link) {
		parent = *link;
		if (queue->before(thread, rb_entry(parent, struct xk_thread, rb))) {
			link = &parent->rb_left;
		} else {
			link = &parent->rb_right;
			first = false;
		}
	}
	rb_link_node(&thread->rb, parent, link);
	rb_insert_color_cached(&thread->rb, &queue->tree, first);
}

static void insert_list(struct xk_queue *queue, struct xk_thread *thread)
{
	struct xk_thread *other;

	list_for_each_entry_reverse(other, &queue->list, node)
		if (!queue->before(thread, other))
			break;
	/* After `other`, which is the head if all run later. */
	list_add(&thread->node, &other->node);
}

void xk_queue_add(struct xk_queue *queue, struct xk_thread *thread)
{
	struct xk_sched_policy *policy = queue->policy;
	struct xk_policy_core *own = per_cpu_ptr(policy->cores, queue->core);
	struct xk_core *core = per_cpu_ptr(&xk_cores, queue->core);

	if (queue->type == XK_FIFO)
		list_add_tail(&thread->node, &queue->list);
	else if (queue->type == XK_LIST)
		insert_list(queue, thread);
	else
		insert_tree(queue, thread);
	queue->nr++;
	thread->queue = queue;
	thread->ready_since = jiffies;
	thread->nr_declined = own->nr_declined;
	xk_count_ready(thread);
	/* It does not get later what it did not want. */
	if (!own->nr_ready++ && (s64)(core->time - own->time) > 0)
		own->time = core->time;
	core->ready |= BIT(policy->id);
}

void xk_queue_remove(struct xk_thread *thread)
{
	struct xk_queue *queue = thread->queue;
	struct xk_sched_policy *policy = queue->policy;

	if (queue->type == XK_RBTREE)
		rb_erase_cached(&thread->rb, &queue->tree);
	else
		list_del(&thread->node);
	queue->nr--;
	thread->queue = NULL;
	if (!--per_cpu_ptr(policy->cores, queue->core)->nr_ready)
		per_cpu_ptr(&xk_cores, queue->core)->ready &= ~BIT(policy->id);
}
