// SPDX-License-Identifier: GPL-2.0-only
/* What of a policy's events is recorded. */
#include <linux/cpumask.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "event/record.h"
#include "model/queue.h"

/* A machine with more cores than bits is not recorded. */
static u64 bits(const struct cpumask *mask)
{
	return cpumask_bits(mask)[0];
}

/* What a policy can see of a task: see user/include/linux/sched.h. */
static void add_task(struct xk_sched_record *record, const struct task_struct *task)
{
	record->ran = task->se.sum_exec_runtime;
	record->weight = task->scx.weight;
	record->allowed = bits(task->cpus_ptr);
	record->migration_disabled = task->migration_disabled;
}

void xk_record_begin(struct xk_context *context, int why)
{
	const struct xk_thread *thread = context->thread;
	struct xk_sched_record record = {
		.kind = context->event,
		.core = context->core,
		.answer = why,
		.online = bits(cpu_online_mask),
	};

	if (!xk_record_lock(context->policy))
		return;
	context->recording = true;
	if (thread) {
		record.thread = thread->serial;
		record.state = thread->state;
		add_task(&record, thread->task);
	}
	xk_record_put(&record);
}

void xk_record_end(struct xk_context *context, int answer)
{
	const bool is_prepare = context->event == XK_NEW_PREPARE ||
				context->event == XK_UNBLOCK_PREPARE;
	const struct xk_sched_record record = {
		.kind = XK_RECORD_END,
		.core = context->core,
		.thread = context->thread ? context->thread->serial : 0,
		.state = context->thread ? context->thread->state : 0,
		.answer = is_prepare ? answer : 0,
	};

	xk_record_put(&record);
	context->recording = false;
	xk_record_unlock();
}

/* An event is not left while a record is written. */
static void put(struct xk_context *context, const struct xk_sched_record *record)
{
	const bool changing = context->changing;

	WRITE_ONCE(context->changing, true);
	xk_record_put(record);
	WRITE_ONCE(context->changing, changing);
}

void xk_record_change(struct xk_context *context, const struct xk_thread *thread,
		      enum xk_state state, int core, const struct xk_queue *queue, int answer)
{
	const struct xk_sched_record record = {
		.kind = XK_RECORD_CHANGE,
		.state = state,
		.core = core,
		.thread = thread->policy == context->policy ? thread->serial : 0,
		.answer = answer,
		.queue = queue ? queue->serial : 0,
	};

	put(context, &record);
}

void xk_record_steal(struct xk_context *context, const struct xk_queue *from,
		     const struct xk_thread *thread)
{
	const struct xk_sched_record record = {
		.kind = XK_RECORD_STEAL,
		.core = from->core,
		.thread = thread ? thread->serial : 0,
		.queue = from->serial,
	};

	put(context, &record);
}

void xk_record_idle_core(struct xk_context *context, int answer)
{
	const struct xk_sched_record record = {
		.kind = XK_RECORD_IDLE_CORE,
		.thread = context->thread->serial,
		.answer = answer,
	};

	put(context, &record);
}

void xk_record_preempt(struct xk_context *context, int core)
{
	const struct xk_sched_record record = { .kind = XK_RECORD_PREEMPT, .core = core };

	put(context, &record);
}

/* A thread joins, leaves, or is taken out of its queue. */
static void put_thread(const struct xk_thread *thread, struct xk_sched_record *record)
{
	record->thread = thread->serial;
	record->core = thread->core;
	record->state = thread->state;
	xk_record_put(record);
}

void xk_record_oust(struct xk_thread *thread)
{
	struct xk_sched_record record = { .kind = XK_RECORD_OUST };
	const bool locked = xk_record_lock(thread->policy);

	if (locked)
		put_thread(thread, &record);
	xk_queue_remove(thread);
	if (locked)
		xk_record_unlock();
}

void xk_record_join(const struct xk_thread *thread)
{
	struct xk_sched_record record = {
		.kind = XK_RECORD_JOIN,
		.answer = thread->task->pid,
	};

	if (!xk_record_lock(thread->policy))
		return;
	strscpy(record.comm, thread->task->comm);
	put_thread(thread, &record);
	xk_record_unlock();
}

void xk_record_leave(const struct xk_thread *thread)
{
	struct xk_sched_record record = { .kind = XK_RECORD_LEAVE };

	if (!xk_record_lock(thread->policy))
		return;
	put_thread(thread, &record);
	xk_record_unlock();
}

void xk_record_cpus(struct xk_sched_policy *policy, const struct cpumask *cpus, bool confined)
{
	const struct xk_sched_record record = {
		.kind = XK_RECORD_CPUS,
		.answer = confined,
		.allowed = bits(cpus),
	};
	const bool locked = xk_record_lock(policy);

	/* Who looks at the old set is not surprised by a change. */
	if (cpus != policy->cpus) {
		cpumask_copy(policy->next_cpus, cpus);
		policy->next_cpus = xchg(&policy->cpus, policy->next_cpus);
	}
	WRITE_ONCE(policy->confined, confined);
	if (!locked)
		return;
	xk_record_put(&record);
	xk_record_unlock();
}
