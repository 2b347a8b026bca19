// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stop of the machine in which xk.ko checks the threads and switches versions. One CPU does
 * this while the others wait. Then each CPU records, in its own stopper thread, that it has
 * switched.
 */
#include <linux/cpumask.h>
#include <linux/stop_machine.h>
#include <linux/timekeeping.h>

#include "text/internal.h"
#include "text/poke.h"
#include "transition/transition.h"

struct stop {
	struct xk_live_transition *transition;
	u64 epoch;
	atomic_t arrived;
	bool acted;
	u64 took;		/* nanoseconds until the other CPUs may continue */
	bool changed;		/* versions or threads switched: scan.found is in use */
};

/* Protected by xk_lock. */
static u64 last_epoch;

static void make_changes(struct xk_live_transition *transition, bool last, u64 epoch)
{
	unsigned int i;

	for (i = 0; i < transition->nr_changes; i++) {
		const struct xk_text_change *change = transition->changes[i];
		bool is_last = change->backend->traits & XK_BACKEND_FLIP_LAST;

		if (is_last != last)
			continue;
		/* During this change each CPU switches. */
		if (last)
			change->pokes->epoch = epoch;
		xk_pokes_make(change->pokes);
	}
}

/* Puts the other version into force for all threads except those that were found. */
static void flip(struct xk_live_transition *transition, u64 epoch)
{
	unsigned int i;

	/* First redirect every stub to its handler, which uses the previous version. */
	make_changes(transition, false, epoch);
	transition->scan.found->epoch = epoch;
	for (i = 0; i < transition->nr; i++) {
		struct xk_tune *tune = transition->tunes[i];
		struct xk_values *before = tune->values;

		tune->other->before = before;
		tune->other->settling = transition->scan.found;
		/* The block is complete before a handler can find it. */
		smp_store_release(&tune->values, tune->other);
		tune->other = before;
	}
	make_changes(transition, true, epoch);
	transition->phase = XK_TRANSITION_SETTLING;
}

/* Whether no one else has changed the instructions that are to change. */
static bool may_change_text(struct xk_live_transition *transition)
{
	unsigned int i;

	transition->obstacle = 0;
	for (i = 0; i < transition->nr_changes && !transition->obstacle; i++) {
		const struct xk_text_change *change = transition->changes[i];

		if (change->backend->find_obstacle)
			transition->obstacle = change->backend->find_obstacle(change);
	}
	return !transition->obstacle;
}

/* Switches the threads that have left. */
static void settle(struct xk_live_transition *transition)
{
	unsigned int i;

	xk_scan_again(transition, transition->settling);
	transition->scan.found->epoch = transition->settling->epoch;
	for (i = 0; i < transition->nr; i++) {
		struct xk_values *values = transition->tunes[i]->values;

		/* The list is complete before a handler in an NMI can find it. */
		smp_store_release(&values->settling, transition->scan.found);
	}
}

static bool act(struct xk_live_transition *transition, u64 epoch)
{
	switch (transition->phase) {
	case XK_TRANSITION_SETTLING:
		settle(transition);
		return true;
	case XK_TRANSITION_REVERSING:
		/* Threads that still settle use the version that comes back. */
		xk_scan_all(transition, transition->settling);
		break;
	case XK_TRANSITION_WAITING:
		xk_scan_all(transition, NULL);
		/* In mode now: threads in the middle of instructions that are to change. */
		if (transition->mode != XK_MODE_TASK && transition->scan.found->nr)
			return false;
		break;
	}
	if (transition->scan.overflow || !may_change_text(transition))
		return false;
	if (transition->nr_changes && !xk_text_is_free())
		return false;
	flip(transition, epoch);
	return true;
}

static void note_epoch_offline(u64 epoch)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		if (!cpu_online(cpu))
			per_cpu(xk_epoch, cpu) = epoch;
}

static void follow_changes(struct xk_live_transition *transition, unsigned int *seen)
{
	unsigned int i;

	for (i = 0; i < transition->nr_changes; i++)
		xk_pokes_follow(transition->changes[i]->pokes, &seen[i]);
}

/* Runs on every CPU, with interrupts disabled. */
static int flip_on_each_cpu(void *data)
{
	struct stop *stop = data;
	unsigned int seen[XK_MAX_BACKENDS] = {};

	if (atomic_inc_return(&stop->arrived) == 1) {
		u64 began = ktime_get_ns();

		stop->changed = act(stop->transition, stop->epoch);
		note_epoch_offline(stop->epoch);
		stop->took = ktime_get_ns() - began;
		/* Pairs with the load below: a CPU that continues sees the new versions. */
		smp_store_release(&stop->acted, true);
	} else {
		/* Pairs with the store above. */
		while (!smp_load_acquire(&stop->acted)) {
			follow_changes(stop->transition, seen);
			cpu_relax();
		}
	}
	this_cpu_write(xk_epoch, stop->epoch);
	return 0;
}

/*
 * Whether a change is forbidden where a kprobe is. A kprobe that is being registered may already
 * have a copy of an instruction.
 */
static bool depends_on_probes(const struct xk_live_transition *transition)
{
	unsigned int i;

	for (i = 0; i < transition->nr_changes; i++)
		if (transition->changes[i]->backend->find_obstacle)
			return true;
	return false;
}

static int stop_to_change_text(struct stop *stop)
{
	bool probes = depends_on_probes(stop->transition);
	int ret;

	if (probes)
		xk_probes_lock();
	xk_text_lock();
	ret = xk_stop_machine_locked(flip_on_each_cpu, stop);
	xk_text_unlock();
	if (probes)
		xk_probes_unlock();
	return ret;
}

bool xk_stop(struct xk_live_transition *transition)
{
	struct stop stop = { .transition = transition };
	int ret;

	lockdep_assert_held(&xk_lock);
	last_epoch += XK_EPOCH_STEP;
	stop.epoch = last_epoch;
	transition->stops++;
	if (transition->nr_changes)
		ret = stop_to_change_text(&stop);
	else
		ret = stop_machine(flip_on_each_cpu, &stop, cpu_online_mask);
	xk_stop_budget_add(&transition->budget, stop.took);
	return !ret && stop.changed;
}
