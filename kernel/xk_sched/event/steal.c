// SPDX-License-Identifier: GPL-2.0-only
/* What policies may ask for in events besides changes of states. */
#include <linux/cpumask.h>
#include <linux/irqflags.h>

#include "event/context.h"
#include "event/report.h"
#include "ext/kernel.h"
#include "model/core.h"
#include "model/queue.h"

/*
 * While a thread is in a queue and the queue's lock is held, its affinity does not change: the
 * kernel takes it out of the queue first. It does not run, so it does not disable migration either.
 */
static bool may_move(const struct xk_thread *thread, int core)
{
	return !thread->task->migration_disabled &&
	       cpumask_test_cpu(core, thread->task->cpus_ptr);
}

static struct xk_thread *move_first(struct xk_queue *from, struct xk_queue *to)
{
	struct xk_thread *thread = xk_queue_first(from);

	while (thread && !may_move(thread, to->core))
		thread = xk_queue_next(from, thread);
	if (!thread)
		return NULL;
	xk_queue_remove(thread);
	thread->state = XK_MIGRATING;
	WRITE_ONCE(thread->core, to->core);
	xk_queue_add(to, thread);
	thread->state = XK_READY;
	return thread;
}

struct xk_thread *xk_steal(struct xk_queue *from, struct xk_queue *to)
{
	struct xk_context *context = this_cpu_ptr(&xk_context);
	struct xk_thread *thread;
	struct xk_core *other;

	if (!irqs_disabled() || context->event != XK_NEWLY_IDLE)
		return NULL;
	if (from->policy != context->policy || to->policy != context->policy ||
	    to->core != context->core || from->core == to->core) {
		const struct xk_fault fault = {
			.policy = context->policy,
			.event = context->event,
			.core = context->core,
		};

		xk_report(&fault, "it steals from a queue of core %d for one of core %d",
			  from->core, to->core);
		return NULL;
	}
	other = per_cpu_ptr(&xk_cores, from->core);
	if (!READ_ONCE(from->nr) || !raw_spin_trylock(&other->lock))
		return NULL;
	thread = move_first(from, to);
	raw_spin_unlock(&other->lock);
	return thread;
}
EXPORT_SYMBOL_GPL(xk_steal);

int xk_idle_core(struct xk_thread *thread, int core)
{
	struct xk_context *context = this_cpu_ptr(&xk_context);
	bool idle = false;
	int found;

	/* Elsewhere, sched_ext has not prepared what its function needs. */
	if (!irqs_disabled() || context->thread != thread ||
	    (context->event != XK_NEW_PREPARE && context->event != XK_UNBLOCK_PREPARE) ||
	    !thread->enabled)
		return core;
	found = xk_ext_select(thread->task, core, 0, &idle);
	return found >= 0 ? found : core;
}
EXPORT_SYMBOL_GPL(xk_idle_core);

void xk_preempt(int core)
{
	if (irqs_disabled() && __this_cpu_read(xk_context.event) != XK_NO_EVENT &&
	    core >= 0 && core < nr_cpu_ids && cpu_online(core))
		xk_ext_kick(core, true);
}
EXPORT_SYMBOL_GPL(xk_preempt);
