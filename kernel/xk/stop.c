// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stop of the machine in which threads are looked at and versions change.
 * One CPU does it while the others wait; then each notes, in its own stopper,
 * that it has gone over.
 */
#include <linux/cpumask.h>
#include <linux/stop_machine.h>
#include <linux/timekeeping.h>

#include "internal.h"
#include "patch.h"
#include "poke.h"
#include "turn.h"
#include "version.h"

struct stop {
	struct xk_turn *turn;
	u64 epoch;
	atomic_t arrived;
	bool acted;
	u64 took;		/* nanoseconds, until the others may go on */
	bool changed;		/* versions or threads: scan.found is in use */
};

/* Under xk_lock. */
static u64 last_epoch;

/* The other version comes into force, for all but those that were found. */
static void flip(struct xk_turn *turn, u64 epoch)
{
	unsigned int i;

	/* First every stub asks, and is told the version from before. */
	if (turn->pokes)
		xk_pokes_make(turn->pokes);
	turn->scan.found->epoch = epoch;
	for (i = 0; i < turn->nr; i++) {
		struct xk_turn_part *part = &turn->parts[i];
		struct xk_values *before = part->tune->values;

		part->other->before = before;
		part->other->settling = turn->scan.found;
		/* The block is complete before a handler can find it. */
		smp_store_release(&part->tune->values, part->other);
		part->other = before;
	}
	/* Last: with it, each CPU goes over. */
	if (turn->patches)
		xk_patches_make(turn->patches, epoch);
	turn->phase = XK_TURN_SETTLING;
}

/* Nobody else has changed the instructions that are to change. */
static bool may_patch(struct xk_turn *turn)
{
	const struct xk_patched *other = NULL;

	if (turn->patches)
		other = xk_patches_find_other(turn->patches);
	turn->obstacle = other ? other->window.address : 0;
	return !other;
}

/* Those that have left go over. */
static void settle(struct xk_turn *turn)
{
	unsigned int i;

	xk_scan_again(turn, turn->settling);
	turn->scan.found->epoch = turn->settling->epoch;
	for (i = 0; i < turn->nr; i++) {
		struct xk_values *values = turn->parts[i].tune->values;

		/* The list is complete before a handler in an NMI can find it. */
		smp_store_release(&values->settling, turn->scan.found);
	}
}

static bool act(struct xk_turn *turn, u64 epoch)
{
	switch (turn->phase) {
	case XK_TURN_SETTLING:
		settle(turn);
		return true;
	case XK_TURN_TURNING_BACK:
		/* Who still settles uses the version to which we turn back. */
		xk_scan_all(turn, turn->settling);
		break;
	case XK_TURN_WAITING:
		xk_scan_all(turn, NULL);
		/* In mode now, those in the middle of instructions that are to change. */
		if (turn->mode != XK_MODE_TASK && turn->scan.found->nr)
			return false;
		break;
	}
	if (turn->scan.overflow || !may_patch(turn))
		return false;
	if ((turn->pokes || turn->patches) && !xk_text_is_free())
		return false;
	flip(turn, epoch);
	return true;
}

static void note_epoch_offline(u64 epoch)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		if (!cpu_online(cpu))
			per_cpu(xk_epoch, cpu) = epoch;
}

/* On every CPU, with interrupts disabled. */
static int turn_on_each_cpu(void *data)
{
	struct stop *stop = data;
	unsigned int seen = 0, patches_seen = 0;

	if (atomic_inc_return(&stop->arrived) == 1) {
		u64 began = ktime_get_ns();

		stop->changed = act(stop->turn, stop->epoch);
		note_epoch_offline(stop->epoch);
		stop->took = ktime_get_ns() - began;
		/* Pairs with the load below: who goes on sees the new versions. */
		smp_store_release(&stop->acted, true);
	} else {
		/* Pairs with the store above. */
		while (!smp_load_acquire(&stop->acted)) {
			if (stop->turn->pokes)
				xk_pokes_follow(stop->turn->pokes, &seen);
			if (stop->turn->patches)
				xk_pokes_follow(stop->turn->patches->pokes, &patches_seen);
			cpu_relax();
		}
	}
	this_cpu_write(xk_epoch, stop->epoch);
	return 0;
}

/* Stops the machine once. Returns whether turn->scan.found is in use now. */
bool xk_stop(struct xk_turn *turn)
{
	struct stop stop = { .turn = turn, .epoch = ++last_epoch };
	int ret;

	turn->stops++;
	if (turn->pokes || turn->patches) {
		xk_text_lock();
		ret = xk_stop_machine_locked(turn_on_each_cpu, &stop);
		xk_text_unlock();
	} else {
		ret = stop_machine(turn_on_each_cpu, &stop, cpu_online_mask);
	}
	xk_stops_add(&turn->budget, stop.took);
	return !ret && stop.changed;
}
