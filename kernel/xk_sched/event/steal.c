// SPDX-License-Identifier: GPL-2.0-only
/* What policies may ask for in events besides changes of states. */
#include <linux/cpumask.h>
#include <linux/irqflags.h>

#include "event/context.h"
#include "event/record.h"
#include "event/report.h"
#include "event/trace.h"
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

/* With the lock of the other core. From then on, the thread belongs to this core. */
static struct xk_thread *take_first(struct xk_queue *from, int core)
{
	struct xk_thread *thread = xk_queue_first(from);

	while (thread && !may_move(thread, core))
		thread = xk_queue_next(from, thread);
	if (!thread)
		return NULL;
	xk_queue_remove(thread);
	trace_xk_sched_move(thread, core);
	thread->state = XK_MIGRATING;
	WRITE_ONCE(thread->core, core);
	return thread;
}

/* With the lock of the core of `to`. */
static struct xk_thread *steal(struct xk_queue *from, struct xk_queue *to)
{
	struct xk_core *other = per_cpu_ptr(&xk_cores, from->core);
	struct xk_thread *thread;

	if (!READ_ONCE(from->nr) || !xk_policy_has(to->policy, to->core) ||
	    !raw_spin_trylock(&other->lock))
		return NULL;
	thread = take_first(from, to->core);
	raw_spin_unlock(&other->lock);
	if (thread) {
		/* The queue may ask the policy for the order, so no other lock is held. */
		xk_queue_add(to, thread);
		thread->state = XK_READY;
	}
	return thread;
}

struct xk_thread *xk_steal(struct xk_queue *from, struct xk_queue *to)
{
	struct xk_context *context = this_cpu_ptr(&xk_context);
	struct xk_thread *thread;

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
	WRITE_ONCE(context->changing, true);
	thread = steal(from, to);
	if (unlikely(context->recording))
		xk_record_steal(context, from, thread);
	WRITE_ONCE(context->changing, false);
	return thread;
}
EXPORT_SYMBOL_GPL(xk_steal);

/* Interrupts are off, so no event overwrites the set of another. */
static DEFINE_PER_CPU(struct cpumask, usable);

static int idle_of_policy(const struct xk_thread *thread, int core)
{
	struct cpumask *own = this_cpu_ptr(&usable);

	cpumask_and(own, xk_policy_cpus(thread->policy), thread->task->cpus_ptr);
	return xk_ext_select_of(thread->task, core, own);
}

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
	if (likely(!READ_ONCE(thread->policy->confined)))
		found = xk_ext_select(thread->task, core, 0, &idle);
	else
		found = idle_of_policy(thread, core);
	if (found < 0)
		found = core;
	if (unlikely(context->recording))
		xk_record_idle_core(context, found);
	return found;
}
EXPORT_SYMBOL_GPL(xk_idle_core);

void xk_preempt(int core)
{
	struct xk_context *context = this_cpu_ptr(&xk_context);

	if (!irqs_disabled() || context->event == XK_NO_EVENT || core < 0 || core >= nr_cpu_ids ||
	    !cpu_online(core))
		return;
	if (unlikely(context->recording))
		xk_record_preempt(context, core);
	xk_ext_kick(core, true);
}
EXPORT_SYMBOL_GPL(xk_preempt);
