// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lets the policy schedule the made-up machine, and checks after each step that no thread is lost,
 * queued twice, or placed where it may not run. The core's own checks of the policy are in force.
 */
#include <signal.h>
#include <sys/time.h>

#include "machine.h"

#include "event/record.h"
#include "model/cpus.h"
#include "model/queue.h"
#include "model/state.h"

#define STEPS_BETWEEN_DRAINS 512
/* Time of the processor for these steps: more than any needs. */
#define PATIENCE_S 5

u64 xk_nr_switches;
static const struct xk_user_fuzz *options;
static u64 step;
static FILE *recording;

void xk_violation(const char *format, ...)
{
	va_list args;

	printf("seed %llu, step %llu: ", options->seed, step);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	xk_user_print_report(stdout);
	fflush(stdout);
	exit(1);
}

static void loops(int signal)
{
	xk_violation("an event of the policy does not return");
}

static void be_patient(void)
{
	const struct itimerval timer = { .it_value.tv_sec = PATIENCE_S };

	setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

void xk_machine_put(const struct xk_sched_record *record)
{
	fwrite(record, sizeof(*record), 1, recording);
}

/* How often the thread is in its queue, and how many threads are. */
static unsigned int find(const struct xk_thread *thread, unsigned int *nr)
{
	struct xk_thread *other = xk_queue_first(thread->queue);
	unsigned int found = 0;

	for (*nr = 0; other && *nr <= thread->queue->nr; (*nr)++) {
		found += other == thread;
		other = xk_queue_next(thread->queue, other);
	}
	return found;
}

static void check_queue(const struct xk_actor *actor)
{
	const struct xk_thread *thread = &actor->thread;
	unsigned int nr, found = find(thread, &nr);

	if (found != 1 || nr != thread->queue->nr)
		xk_violation("thread %d is %u times in a queue of %u threads (%u)",
			     actor->task.pid, found, nr, thread->queue->nr);
	if (thread->state != XK_READY || thread->queue->core != thread->core)
		xk_violation("thread %d, in a queue of core %d, is %s on core %d", actor->task.pid,
			     thread->queue->core, xk_state_name(thread->state), thread->core);
	if (!cpumask_test_cpu(thread->core, actor->task.cpus_ptr) || !cpu_online(thread->core))
		xk_violation("thread %d waits on core %d, where it may not run", actor->task.pid,
			     thread->core);
	if (!xk_is_home(thread, thread->core))
		xk_violation("thread %d waits on core %d, which its policy has not",
			     actor->task.pid, thread->core);
}

static void check(void)
{
	unsigned int i;

	if (!xk_user_policy->live)
		xk_violation("the policy is ejected");
	for (i = 0; i < xk_nr_actors; i++) {
		const struct xk_actor *actor = &xk_actors[i];
		const bool waits = actor->where == XK_QUEUED && !actor->local;

		if (!actor->thread.queue != !waits)
			xk_violation("thread %d is %s a queue (%s)", actor->task.pid,
				     waits ? "in no" : "in", xk_state_name(actor->thread.state));
		if (actor->thread.queue)
			check_queue(actor);
	}
}

static unsigned int nr_owed(void)
{
	unsigned int i, nr = 0;

	for (i = 0; i < xk_nr_actors; i++)
		nr += xk_actors[i].owed;
	return nr;
}

/* Every thread that waits runs, if those that run sleep and none wakes. */
static void drain(void)
{
	unsigned int i, round;
	int core;

	for (i = 0; i < xk_nr_actors; i++)
		xk_actors[i].owed = xk_actors[i].where == XK_QUEUED;
	for (round = 0; round < 2 * XK_MAX_ACTORS && nr_owed(); round++) {
		for_each_online_cpu(core)
			xk_machine_block(core);
		xk_machine_reschedule();
		check();
	}
	for (i = 0; i < xk_nr_actors; i++)
		if (xk_actors[i].owed)
			xk_violation("thread %d waits on core %d, and is never chosen",
				     xk_actors[i].task.pid, xk_actors[i].task.core);
}

static void begin_recording(void)
{
	struct xk_sched_recording_head head = {
		.magic = XK_SCHED_RECORDING_MAGIC,
		.record_size = sizeof(struct xk_sched_record),
		.nr_cores = nr_cpu_ids,
		.possible = xk_user_possible.bits,
		.online = xk_user_online.bits,
		.release = "made up",
	};

	if (!options->record)
		return;
	recording = fopen(options->record, "wb");
	if (!recording) {
		perror(options->record);
		exit(2);
	}
	strscpy(head.policy, xk_user_policy->name);
	fwrite(&head, sizeof(head), 1, recording);
	xk_recorded = xk_user_policy;
}

int xk_user_fuzz(const struct xk_user_fuzz *wanted)
{
	options = wanted;
	signal(SIGVTALRM, loops);
	be_patient();
	xk_machine_start(options->seed);
	begin_recording();
	for (step = 1; step <= options->steps; step++) {
		xk_machine_step();
		xk_machine_reschedule();
		check();
		if (step % STEPS_BETWEEN_DRAINS)
			continue;
		drain();
		be_patient();
	}
	drain();
	if (recording && fclose(recording)) {
		perror(options->record);
		return 2;
	}
	printf("seed %llu: %llu steps, %llu switches of %u threads on %u cores\n", options->seed,
	       options->steps, xk_nr_switches, xk_nr_actors, nr_cpu_ids);
	return 0;
}
