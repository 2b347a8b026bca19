// SPDX-License-Identifier: GPL-2.0-only
/*
 * A made-up machine: what sched_ext does with random threads on some cores, as far as class/ sees
 * it. The numbers that decide everything follow from a seed, so each run can be repeated.
 */
#include <unistd.h>

#include "machine.h"

#include "class/class.h"
#include "model/cpus.h"
#include "model/thread.h"
#include "policy/cpus.h"

struct xk_actor xk_actors[XK_MAX_ACTORS];
unsigned int xk_nr_actors;
static struct xk_actor *running[XK_SCHED_RECORDING_CORES];
/* The queue of a core in sched_ext. */
static struct {
	struct xk_actor *actors[XK_MAX_ACTORS];
	unsigned int nr;
} local[XK_SCHED_RECORDING_CORES];
static bool kicked[XK_SCHED_RECORDING_CORES];
static bool displaced[XK_SCHED_RECORDING_CORES];
static int rq_core;	/* whose run queue is locked */
static u64 state;	/* of the random numbers */

u64 xk_random(u64 below)
{
	u64 word = (state += 0x9e3779b97f4a7c15);

	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
	word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
	return (word ^ (word >> 31)) % below;
}

static struct xk_actor *actor_of(struct task_struct *task)
{
	return container_of(task, struct xk_actor, task);
}

static bool may_run(const struct xk_actor *actor, int core)
{
	return cpu_online(core) && cpumask_test_cpu(core, actor->task.cpus_ptr);
}

/* The core, or another if the thread may not run there. The kernel forgets an empty affinity. */
static int usable(struct xk_actor *actor, int core)
{
	if (may_run(actor, core))
		return core;
	if (!(actor->task.cpus_mask.bits & xk_user_online.bits))
		actor->task.cpus_mask = xk_user_possible;
	do
		core = xk_random(nr_cpu_ids);
	while (!may_run(actor, core));
	return core;
}

static void run_on_local(struct task_struct *task, u64 slice)
{
	struct xk_actor *actor = actor_of(task);

	if (actor->local)
		xk_violation("thread %d is given to sched_ext twice", task->pid);
	if (!xk_is_home(&actor->thread, rq_core))
		xk_violation("thread %d shall run on core %d, which its policy has not", task->pid,
			     rq_core);
	actor->local = true;
	task->core = rq_core;
	task->scx.slice = slice;
	local[rq_core].actors[local[rq_core].nr++] = actor;
}

static void take_from_local(struct xk_actor *actor)
{
	struct xk_actor **actors = local[actor->task.core].actors;
	unsigned int i = 0;

	while (actors[i] != actor)
		i++;
	local[actor->task.core].nr--;
	memmove(actors + i, actors + i + 1,
		(local[actor->task.core].nr - i) * sizeof(*actors));
	actor->local = false;
}

static bool trylock(void)
{
	return xk_random(8);
}

/* An idle core, often. */
static int select_core(struct task_struct *task, int core, const struct cpumask *cpus)
{
	int other, turn = xk_random(nr_cpu_ids);

	for_each_cpu_wrap(other, cpu_online_mask, turn)
		if (!running[other] && cpumask_test_cpu(other, task->cpus_ptr) &&
		    cpumask_test_cpu(other, cpus) && xk_random(8))
			return other;
	return core;
}

static void kick(int core, bool preempt)
{
	kicked[core] = true;
	if (preempt && running[core])
		running[core]->task.scx.slice = 0;
}

static void displace_running(void)
{
	displaced[xk_user_core] = true;
}

const struct xk_user_world xk_machine = {
	.put = xk_machine_put,
	.trylock = trylock,
	.select = select_core,
	.kick = kick,
	.run = run_on_local,
	.displace = displace_running,
};

static void enqueue(struct xk_actor *actor, int core)
{
	actor->where = XK_QUEUED;
	actor->task.core = core;
	rq_core = core;
	xk_class_enqueue(&actor->task, 0);
}

/* As for a change of attributes. */
static void dequeue(struct xk_actor *actor)
{
	if (actor->local)
		take_from_local(actor);
	else if (actor->where == XK_QUEUED)
		xk_class_dequeue(&actor->task, 1);
	xk_class_quiescent(&actor->task, 0);
}

static void begin(struct xk_actor *actor, int core)
{
	if (!may_run(actor, core))
		xk_violation("thread %d runs on core %d, where it may not", actor->task.pid, core);
	actor->where = XK_RUNS;
	actor->owed = false;
	running[core] = actor;
	xk_user_current[core] = &actor->task;
	xk_nr_switches++;
}

static void stop(int core)
{
	running[core] = NULL;
	xk_user_current[core] = NULL;
}

/* The core reschedules. sched_ext asks before it puts back the thread whose time is over. */
static void pick(int core)
{
	struct xk_actor *prev = running[core], *next;

	if (!cpu_online(core) || (prev && prev->task.scx.slice))
		return;
	xk_user_core = core;
	rq_core = core;
	if (!local[core].nr)
		xk_class_dispatch(core, prev ? &prev->task : NULL);
	if (prev && !local[core].nr) {
		prev->task.scx.slice = SCX_SLICE_DFL;
		return;
	}
	if (prev) {
		enqueue(prev, core);
		stop(core);
	}
	if (!local[core].nr)
		return;
	next = local[core].actors[0];
	take_from_local(next);
	begin(next, core);
}

void xk_machine_reschedule(void)
{
	int core;

	for (core = 0; core < nr_cpu_ids; core++) {
		if (!kicked[core])
			continue;
		kicked[core] = false;
		pick(core);
	}
}

/* The thread is ready on another core than before. */
static void move(struct xk_actor *actor)
{
	int core = usable(actor, actor->task.core);

	enqueue(actor, core);
	kicked[core] = true;
}

static void wake(struct xk_actor *actor)
{
	struct task_struct *task = &actor->task;

	xk_user_core = xk_random(nr_cpu_ids);
	if (cpumask_weight(task->cpus_ptr) > 1)
		task->core = xk_class_select_cpu(task, task->core, 0);
	move(actor);
}

static void come_or_wake(struct xk_actor *actor)
{
	if (actor->where == XK_ABSENT) {
		actor->task.cpus_mask = xk_user_possible;
		actor->task.scx.weight = 100;
		actor->task.__state = 0;
		actor->task.core = usable(actor, xk_random(nr_cpu_ids));
		actor->thread.choice = xk_user_policy;
		actor->thread.core = actor->task.core;
		actor->thread.state = XK_TERMINATED;
		xk_class_enable(&actor->task);
		wake(actor);
	} else if (actor->where == XK_SLEEPS) {
		wake(actor);
	}
}

static void tick(int core)
{
	struct task_struct *task = running[core] ? &running[core]->task : NULL;
	u64 time = (1 + xk_random(4)) * NSEC_PER_MSEC;

	if (!task)
		return;
	xk_user_core = core;
	task->se.sum_exec_runtime += time;
	task->scx.slice -= min(task->scx.slice, time);
	xk_class_tick(task);
	if (displaced[core]) {
		/* As if the stopper thread interrupted it. */
		displaced[core] = false;
		task->scx.slice = 0;
		enqueue(running[core], core);
		stop(core);
	}
	pick(core);
}

void xk_machine_block(int core)
{
	struct xk_actor *actor = running[core];

	xk_user_core = core;
	if (actor) {
		actor->task.se.sum_exec_runtime += xk_random(NSEC_PER_MSEC);
		actor->task.migration_disabled = 0;
		xk_class_quiescent(&actor->task, SCX_DEQ_SLEEP);
		actor->where = XK_SLEEPS;
		stop(core);
	}
	pick(core);
}

static void yield(int core)
{
	if (!running[core])
		return;
	xk_user_core = core;
	xk_class_yield(&running[core]->task, NULL);
	pick(core);
}

static void end(int core)
{
	struct xk_actor *actor = running[core];

	if (!actor)
		return;
	xk_user_core = core;
	actor->task.__state = TASK_DEAD;
	actor->task.migration_disabled = 0;
	xk_class_quiescent(&actor->task, SCX_DEQ_SLEEP);
	stop(core);
	actor->where = XK_ABSENT;
	pick(core);
	xk_class_disable(&actor->task);
	actor->task.pid += XK_MAX_ACTORS;
}

/* It is taken from its core, whether it runs or waits, and goes to one where it may run. */
static void displace(struct xk_actor *actor)
{
	int core = actor->task.core;

	if (actor->where == XK_RUNS) {
		stop(core);
		kicked[core] = true;
	} else {
		dequeue(actor);
	}
	move(actor);
}

static void change_affinity(struct xk_actor *actor)
{
	u64 mask = xk_random(1ull << nr_cpu_ids) | BIT(xk_random(nr_cpu_ids));

	if (actor->where == XK_ABSENT || actor->task.migration_disabled ||
	    !(mask & xk_user_online.bits))
		return;
	xk_user_core = actor->task.core;
	if (actor->where == XK_QUEUED)
		dequeue(actor);
	actor->task.cpus_mask.bits = mask;
	if (actor->where == XK_QUEUED)
		enqueue(actor, actor->task.core);
	if (actor->where != XK_SLEEPS && !may_run(actor, actor->task.core))
		displace(actor);
}

/* As if it came from another policy. */
static void join_again(struct xk_actor *actor)
{
	if (actor->where == XK_ABSENT)
		return;
	xk_user_core = actor->task.core;
	if (actor->where != XK_SLEEPS)
		dequeue(actor);
	xk_class_disable(&actor->task);
	xk_class_enable(&actor->task);
	if (actor->where == XK_QUEUED)
		enqueue(actor, actor->task.core);
}

static void change_weight(struct xk_actor *actor)
{
	if (actor->where == XK_ABSENT)
		return;
	xk_user_core = actor->task.core;
	if (actor->where == XK_QUEUED)
		dequeue(actor);
	actor->task.scx.weight = 1 + xk_random(1000);
	if (actor->where == XK_QUEUED)
		enqueue(actor, actor->task.core);
}

static void hotplug(int core)
{
	unsigned int i;

	xk_user_core = core;
	if (!cpu_online(core)) {
		xk_user_online.bits |= BIT(core);
		xk_class_cpu_online(core);
		return;
	}
	if (num_online_cpus() == 1)
		return;
	xk_class_cpu_offline(core);
	xk_user_online.bits &= ~BIT(core);
	for (i = 0; i < xk_nr_actors; i++) {
		struct xk_actor *actor = &xk_actors[i];

		if (actor->task.core != core || actor->where < XK_QUEUED)
			continue;
		actor->task.migration_disabled = 0;
		displace(actor);
	}
}

static void change_cpus(void)
{
	const struct cpumask all = xk_user_possible;
	struct cpumask some = { .bits = 1 + xk_random((1ull << nr_cpu_ids) - 1) };

	if (!xk_random(3))
		xk_cpus_change(xk_user_policy, &all);
	else if (some.bits & xk_user_online.bits)
		xk_cpus_change(xk_user_policy, &some);
}

void xk_machine_step(void)
{
	struct xk_actor *actor = &xk_actors[xk_random(xk_nr_actors)];
	int core = xk_random(nr_cpu_ids);

	switch (xk_random(19)) {
	case 0 ... 5:
		return come_or_wake(actor);
	case 6 ... 8:
		return tick(core);
	case 9 ... 10:
		return xk_machine_block(core);
	case 11:
		return yield(core);
	case 12:
		return xk_random(4) ? pick(core) : end(core);
	case 13:
		return change_affinity(actor);
	case 14:
		return join_again(actor);
	case 15:
		return xk_random(16) ? pick(core) : hotplug(core);
	case 18:
		return xk_random(16) ? pick(core) : change_cpus();
	case 16:
		return change_weight(actor);
	default:
		if (running[core])
			running[core]->task.migration_disabled ^= 1;
	}
}

void xk_machine_start(u64 seed)
{
	unsigned int i, nr_cores;

	state = seed;
	nr_cores = 1 + xk_random(8);
	xk_nr_actors = 2 + xk_random(XK_MAX_ACTORS - 1);
	xk_user_world = &xk_machine;
	xk_user_start(nr_cores, BIT(nr_cores) - 1, BIT(nr_cores) - 1);
	for (i = 0; i < xk_nr_actors; i++) {
		struct xk_actor *actor = &xk_actors[i];

		actor->task.pid = 1 + i;
		actor->task.cpus_ptr = &actor->task.cpus_mask;
		actor->thread.task = &actor->task;
		snprintf(actor->task.comm, sizeof(actor->task.comm), "actor%u", i);
	}
}

struct xk_thread *xk_thread_enter(struct task_struct *task)
{
	struct xk_actor *actor = actor_of(task);

	task->scx.dsq_vtime = (unsigned long)&actor->thread;
	return &actor->thread;
}

int xk_thread_add(struct task_struct *task, struct task_struct *parent)
{
	return 0;
}

void xk_thread_remove(struct task_struct *task)
{
}
