// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replays a recording. The events are called in their order, with what the policy could see then;
 * each decision must be the recorded one. What the kernel did by itself is done again in the core's
 * model.
 */
#include "user.h"

#include "event/context.h"
#include "event/record.h"
#include "model/queue.h"
#include "model/thread.h"
#include "policy/list.h"

static const struct xk_sched_record *records;
static size_t nr_records, at, event_at, nr_events, nr_decisions;
static struct xk_thread **threads;	/* by serial */
static size_t nr_threads;

static void differ(const struct xk_sched_record *made, const char *why)
{
	printf("record %zu differs", at);
	if (event_at < nr_records) {
		printf(", in\n  ");
		xk_user_print(stdout, &records[event_at]);
	}
	printf("recorded: ");
	if (at < nr_records)
		xk_user_print(stdout, &records[at]);
	printf("%s ", why);
	if (made)
		xk_user_print(stdout, made);
	else
		printf("\n");
	xk_user_print_report(stdout);
	fflush(stdout);
	exit(1);
}

/* Everything that the core would record must be what it did record. */
static void compare(const struct xk_sched_record *made)
{
	if (at >= nr_records || memcmp(&records[at], made, sizeof(*made)))
		differ(made, "replayed:");
	if (made->kind > XK_RECORD_END && made->kind < XK_RECORD_JOIN)
		nr_decisions++;
	at++;
}

/* What the kernel answered is in the next record. */
static bool is_next(u8 kind)
{
	return at < nr_records && records[at].kind == kind;
}

static bool trylock(void)
{
	return is_next(XK_RECORD_STEAL) && records[at].thread;
}

static int select_core(struct task_struct *task, int core, const struct cpumask *cpus)
{
	return is_next(XK_RECORD_IDLE_CORE) ? records[at].answer : core;
}

static void kick(int core, bool preempt)
{
}

static void run(struct task_struct *task, u64 slice)
{
}

static void displace(void)
{
}

static const struct xk_user_world world = {
	.put = compare,
	.trylock = trylock,
	.select = select_core,
	.kick = kick,
	.run = run,
	.displace = displace,
};

static struct xk_thread *thread_of(const struct xk_sched_record *record)
{
	if (record->thread >= nr_threads || !threads[record->thread])
		differ(NULL, "there is no such thread");
	return threads[record->thread];
}

static void join(const struct xk_sched_record *record)
{
	struct xk_thread *thread = calloc(1, sizeof(*thread));
	struct task_struct *task = calloc(1, sizeof(*task));
	size_t nr = xk_user_policy->nr_joined + 2;

	threads = realloc(threads, nr * sizeof(struct xk_thread *));
	if (!thread || !task || !threads)
		abort();
	while (nr_threads < nr)
		threads[nr_threads++] = NULL;
	task->pid = record->answer;
	task->cpus_ptr = &task->cpus_mask;
	task->cpus_mask.bits = -1ul;
	strscpy(task->comm, record->comm);
	thread->task = task;
	thread->core = record->core;
	thread->enabled = true;
	threads[nr - 1] = thread;
	xk_policy_join(xk_user_policy, thread);
}

static void leave(const struct xk_sched_record *record)
{
	struct xk_thread *thread = thread_of(record);

	if (thread->queue)
		differ(NULL, "it is in a queue:");
	thread->state = record->state;
	xk_policy_leave(thread);
	threads[record->thread] = NULL;
	free(thread->task);
	free(thread);
}

static void oust(const struct xk_sched_record *record)
{
	struct xk_thread *thread = thread_of(record);

	if (!thread->queue)
		differ(NULL, "it is in no queue:");
	xk_record_oust(thread);
	thread->state = XK_MIGRATING;
}

static void change_cpus(const struct xk_sched_record *record)
{
	const struct cpumask cpus = { .bits = record->allowed };

	xk_record_cpus(xk_user_policy, &cpus, record->answer);
}

/* What the policy can see. */
static struct xk_thread *set_inputs(const struct xk_sched_record *record)
{
	struct xk_thread *thread;

	xk_user_core = record->core;
	xk_user_online.bits = record->online;
	if (!record->thread)
		return NULL;
	thread = thread_of(record);
	thread->task->se.sum_exec_runtime = record->ran;
	thread->task->scx.weight = record->weight;
	thread->task->cpus_mask.bits = record->allowed;
	thread->task->migration_disabled = record->migration_disabled;
	thread->state = record->state;
	if (record->kind != XK_NEW_PREPARE && record->kind != XK_UNBLOCK_PREPARE)
		thread->core = record->core;
	return thread;
}

static void queue_again(struct xk_thread *thread)
{
	xk_queue_add(thread->next_queue, thread);
	thread->state = XK_READY;
}

/* As in event/call.c. */
static int call(const struct xk_sched_record *record, struct xk_thread *thread)
{
	const struct xk_sched_events *events = xk_user_policy->events;
	void (*function)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
	int core = record->core;

	switch ((enum xk_event)record->kind) {
	case XK_NEW_PREPARE:
		return events->new_prepare(xk_user_policy, thread, core);
	case XK_UNBLOCK_PREPARE:
		return events->unblock_prepare(xk_user_policy, thread, core);
	case XK_NEW_PLACE:
		function = events->new_place ?: events->unblock_place;
		break;
	case XK_UNBLOCK_PLACE:
		function = events->unblock_place;
		break;
	case XK_YIELD:
		if (!events->yield) {
			function = events->unblock_place;
			break;
		}
		events->yield(xk_user_policy, thread, core, record->answer);
		return 0;
	case XK_NEW_END:
		function = events->new_end;
		break;
	case XK_UNBLOCK_END:
		function = events->unblock_end;
		break;
	case XK_TICK:
		function = events->tick;
		break;
	case XK_BLOCK:
		function = events->block;
		break;
	case XK_TERMINATE:
		function = events->terminate;
		break;
	case XK_SCHEDULE:
		events->schedule(xk_user_policy, core);
		return 0;
	case XK_NEWLY_IDLE:
		events->newly_idle(xk_user_policy, core);
		return 0;
	default:
		queue_again(thread);
		return 0;
	}
	function(xk_user_policy, thread, core);
	return 0;
}

static void replay_event(const struct xk_sched_record *record)
{
	struct xk_thread *thread = set_inputs(record);
	struct xk_context *context = this_cpu_ptr(&xk_context);

	context->event = record->kind;
	context->core = record->core;
	context->policy = xk_user_policy;
	context->thread = thread;
	context->chosen = NULL;
	xk_record_begin(context, record->answer);
	xk_record_end(context, call(record, thread));
	context->event = XK_NO_EVENT;
	nr_events++;
}

int xk_user_replay(const char *path)
{
	const struct xk_sched_recording_head *head = xk_user_load(path, &nr_records, &records);

	xk_user_world = &world;
	xk_user_start(head->nr_cores, head->possible, head->online);
	if (strcmp(head->policy, xk_user_policy->name)) {
		fprintf(stderr, "%s: is of policy %s, not %s\n", path, head->policy,
			xk_user_policy->name);
		return 2;
	}
	xk_recorded = xk_user_policy;
	while (at < nr_records) {
		const struct xk_sched_record *record = &records[at];

		event_at = at;
		if (record->kind == XK_RECORD_JOIN)
			join(record);
		else if (record->kind == XK_RECORD_LEAVE)
			leave(record);
		else if (record->kind == XK_RECORD_OUST)
			oust(record);
		else if (record->kind == XK_RECORD_CPUS)
			change_cpus(record);
		else if (record->kind && record->kind < XK_NR_EVENTS)
			replay_event(record);
		else
			differ(NULL, "not the begin of an event:");
	}
	printf("%s: %zu events and %zu decisions in them are the same\n", xk_user_policy->name,
	       nr_events, nr_decisions);
	return 0;
}
