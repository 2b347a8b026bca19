// SPDX-License-Identifier: GPL-2.0-only
/* The kernel around the core and the policy, as far as it is the same for all worlds. */
#include "user.h"

#include "event/escape.h"
#include "event/record.h"
#include "event/recording.h"
#include "event/report.h"
#include "event/watch.h"
#include "ext/kernel.h"
#include "model/core.h"
#include "model/thread.h"
#include "policy/cpus.h"
#include "policy/eject.h"
#include "policy/list.h"

#define PERCPU_SIZE (256 << 10)
#define MAX_CORES 64

unsigned int nr_cpu_ids;
struct cpumask xk_user_possible, xk_user_online;
int xk_user_core;
struct task_struct *xk_user_current[MAX_CORES], xk_user_idle;
struct xk_sched_policy *xk_user_policy;
const struct xk_user_world *xk_user_world;
struct xk_sched_policy *xk_recorded;
raw_spinlock_t xk_threads_lock;

/* The variables of the section come first. */
static char *percpu;
static size_t percpu_used;

void *xk_user_percpu(const void *pointer, int core)
{
	return percpu + (size_t)core * PERCPU_SIZE + ((const char *)pointer - __start_percpu);
}

void *__alloc_percpu(size_t size, size_t alignment)
{
	size_t at = (percpu_used + alignment - 1) / alignment * alignment;

	if (at + size > PERCPU_SIZE)
		return NULL;
	percpu_used = at + size;
	return __start_percpu + at;
}

void xk_user_start(unsigned int nr_cores, u64 possible, u64 online)
{
	nr_cpu_ids = nr_cores;
	xk_user_possible.bits = possible;
	xk_user_online.bits = online;
	percpu = calloc(MAX_CORES, PERCPU_SIZE);
	percpu_used = (__stop_percpu - __start_percpu + 63) / 64 * 64;
	xk_cores_init();
	if (!percpu || xk_user_init()) {
		fprintf(stderr, "the policy is not registered\n");
		exit(2);
	}
	xk_user_policy = xk_policies[0];
}

bool xk_user_trylock(void)
{
	return xk_user_world->trylock();
}

/* sched_ext. */
void xk_ext_run(struct task_struct *task, u64 slice_ns, u64 enq_flags)
{
	xk_user_world->run(task, slice_ns);
}

void xk_ext_kick(int core, bool preempt)
{
	xk_user_world->kick(core, preempt);
}

int xk_ext_select(struct task_struct *task, int core, u64 wake_flags, bool *idle)
{
	return xk_user_world->select(task, core, cpu_possible_mask);
}

int xk_ext_select_of(struct task_struct *task, int core, const struct cpumask *cpus)
{
	return xk_user_world->select(task, core, cpus);
}

void xk_displace(void)
{
	xk_user_world->displace();
}

/* Recordings. */
bool xk_record_lock(const struct xk_sched_policy *policy)
{
	return xk_recorded == policy;
}

void xk_record_unlock(void)
{
}

void xk_record_put(const struct xk_sched_record *record)
{
	xk_user_world->put(record);
}

void xk_recording_forget(const struct xk_sched_policy *policy)
{
}

/* Events return, or the program does not. */
unsigned long xk_event_run(unsigned long first, unsigned long second, unsigned long third,
			   unsigned long fourth, void *event, struct xk_context *context)
{
	unsigned long (*function)(unsigned long first, unsigned long second, unsigned long third,
				  unsigned long fourth) = event;

	return function(first, second, third, fourth);
}

void xk_escape_report(struct xk_context *context)
{
}

void xk_watch_start(void)
{
}

void xk_watch_stop(void)
{
}

/* An ejected policy ends the run. */
void xk_eject_prepare(struct xk_sched_policy *policy)
{
}

void xk_eject_wait(struct xk_sched_policy *policy)
{
}

void xk_eject_threads(struct xk_sched_policy *policy)
{
}

void xk_eject_stray(void)
{
}

void xk_user_print_report(FILE *file)
{
	struct xk_sched_report report = {};

	if (xk_report_read(0, &report))
		return;
	fprintf(file, "%s", report.event);
	if (report.pid)
		fprintf(file, " of %s[%d], %s -> %s", report.comm, report.pid, report.from,
			report.to);
	fprintf(file, " on core %d: %s\n", report.core, report.text);
}
