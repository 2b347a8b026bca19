// SPDX-License-Identifier: GPL-2.0-only
/*
 * A transition under way: from one version of its tunes to another, stop by
 * stop, until no thread uses the one from before; or back again. Nothing is
 * ever forced. See docs/transitions.md.
 */
#include <linux/err.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "backend.h"
#include "detour.h"
#include "oops.h"
#include "patch.h"
#include "trace.h"
#include "turn.h"

/* Between two looks where nobody waits for it: short at first. */
#define FIRST_INTERVAL (HZ / 50 + 1)
#define LAST_INTERVAL (HZ / 2)

static void go_on(struct work_struct *work)
{
	struct xk_turn *turn = container_of(to_delayed_work(work), struct xk_turn, work);

	mutex_lock(&xk_lock);
	if (xk_turn_advance(turn))
		xk_turn_finish(turn);
	else
		xk_turn_leave(turn);
	xk_unlock_restored();
}

/* Room for `nr` tunes, which xk_turn_add() fills. */
struct xk_turn *xk_turn_create(unsigned int nr, enum xk_mode mode)
{
	struct xk_turn *turn = kvzalloc(struct_size(turn, parts, nr), GFP_KERNEL);

	if (!turn)
		return NULL;
	turn->mode = mode;
	turn->interval = FIRST_INTERVAL;
	INIT_DELAYED_WORK(&turn->work, go_on);
	return turn;
}

/* A module came with other code: what is inside its functions is not known. */
static int check_scopes(const struct xk_tune *tune, struct xk_error *error)
{
	unsigned int i;

	for (i = 0; i < tune->nr_scopes; i++)
		if (tune->scopes[i].phase == XK_PHASE_BROKEN)
			return xk_refuse(error, -EBADMSG,
					 "%s: %s of module %s is not what was analysed: only mode now",
					 tune->name, tune->scopes[i].place.symbol,
					 tune->scopes[i].place.module);
	return 0;
}

int xk_turn_add(struct xk_turn *turn, struct xk_tune *tune, s64 value,
		struct xk_live_policy *policy, bool unload, struct xk_error *error)
{
	struct xk_turn_part *part;
	struct xk_values *values;
	int ret = 0;

	if (tune->turn)
		return xk_refuse(error, -EBUSY, "%s: %s", tune->name,
				 tune->turn == turn ? "named twice" :
				 "is in transition: see xk status");
	if (turn->mode == XK_MODE_TASK && tune->patches)
		return xk_refuse(error, -EOPNOTSUPP,
				 "%s: instructions hold its value, for all threads: mode global, or another backend",
				 tune->name);
	if (turn->mode != XK_MODE_NOW)
		ret = check_scopes(tune, error);
	if (!ret)
		ret = xk_patch_accepts(tune, value, error);
	if (ret)
		return ret;
	values = xk_values_create(tune, value, policy);
	if (!values)
		return -ENOMEM;
	part = &turn->parts[turn->nr];
	turn->nr++;
	part->tune = tune;
	part->other = values;
	part->unload = unload;
	tune->turn = turn;
	trace_xk_transition_start(turn, tune, value);
	return 0;
}

/* The versions have changed, but for threads that are inside. */
static void flipped(const struct xk_turn *turn)
{
	unsigned int i;

	for (i = 0; i < turn->nr; i++) {
		struct xk_tune *tune = turn->parts[i].tune;

		trace_xk_flip(turn, tune, tune->values->value);
		xk_sites_write_data(tune, tune->values->value);
	}
}

static void flip_now(struct xk_turn *turn)
{
	unsigned int i;

	for (i = 0; i < turn->nr; i++) {
		struct xk_turn_part *part = &turn->parts[i];
		struct xk_values *before = part->tune->values;

		/* The block is complete before a handler can find it. */
		smp_store_release(&part->tune->values, part->other);
		part->other = before;
	}
	turn->phase = XK_TURN_SETTLING;
}

static struct xk_tune **tunes_of(const struct xk_turn *turn)
{
	struct xk_tune **tunes = kvmalloc_array(turn->nr, sizeof(struct xk_tune *), GFP_KERNEL);
	unsigned int i;

	for (i = 0; tunes && i < turn->nr; i++)
		tunes[i] = turn->parts[i].tune;
	return tunes;
}

/* A module that has come, or gone, is another question: what was seen is no answer to it. */
static bool update_ranges(struct xk_turn *turn, struct xk_tune *const *tunes)
{
	struct xk_range_set *ranges;

	ranges = xk_range_set_create(tunes, turn->nr, turn->mode != XK_MODE_NOW);
	if (!ranges)
		return false;
	if (turn->scan.ranges && !xk_range_sets_equal(turn->scan.ranges, ranges)) {
		xk_outside_free(turn->scan.outside);
		turn->scan.outside = NULL;
	}
	kvfree(turn->scan.ranges);
	turn->scan.ranges = ranges;
	return true;
}

/*
 * Looks at the threads while they go on. Whether a stop would get any further: in mode
 * task, all who are outside go over, and in the end those who have left.
 */
static bool is_worth_a_stop(struct xk_turn *turn)
{
	u64 began = ktime_get_ns();

	xk_scan_before(turn);
	turn->looked_ns = ktime_get_ns() - began;
	switch (turn->phase) {
	case XK_TURN_SETTLING:
		if (turn->scan.nr_inside >= turn->settling->nr)
			return false;
		break;
	case XK_TURN_WAITING:
		if (turn->mode != XK_MODE_TASK && turn->scan.nr_inside)
			return false;
		break;
	case XK_TURN_TURNING_BACK:
		break;
	}
	return xk_stops_afford(&turn->budget);
}

static bool prepare_stop(struct xk_turn *turn, struct xk_tune *const *tunes)
{
	struct xk_pokes *pokes = xk_detours_ask(tunes, turn->nr);
	struct xk_patches *patches = xk_patches_create(turn);

	turn->scan.found = xk_settling_create();
	turn->pokes = IS_ERR(pokes) ? NULL : pokes;
	turn->patches = IS_ERR(patches) ? NULL : patches;
	return turn->scan.found && !IS_ERR(pokes) && !IS_ERR(patches);
}

/* One stop at most. Without memory for it, none: the next attempt may have it. */
static void stop(struct xk_turn *turn)
{
	struct xk_tune **tunes = tunes_of(turn);
	struct xk_settling *unused = NULL;

	if (!tunes)
		return;
	if (!update_ranges(turn, tunes) || !is_worth_a_stop(turn)) {
		kvfree(tunes);
		return;
	}
	if (!prepare_stop(turn, tunes)) {
		unused = turn->scan.found;
	} else if (xk_stop(turn)) {
		unused = turn->settling;
		turn->settling = turn->scan.found;
		xk_detours_asked(tunes, turn->nr);
		if (turn->patches)
			xk_patches_made(turn->patches);
	} else {
		unused = turn->scan.found;
	}
	xk_settling_free(unused);
	kvfree(tunes);
	kvfree(turn->pokes);
	turn->pokes = NULL;
	xk_patches_free(turn->patches);
	turn->patches = NULL;
	turn->scan.found = NULL;
}

/* Both versions hold the same values, and nobody decides: nothing can be mixed. */
static bool changes_nothing(const struct xk_turn *turn)
{
	unsigned int i;

	for (i = 0; i < turn->nr; i++) {
		const struct xk_values *values = turn->parts[i].tune->values;
		const struct xk_values *other = turn->parts[i].other;

		if (values->value != other->value || values->policy || other->policy)
			return false;
	}
	return true;
}

/* Text must change with it, so that it is not enough to change versions. */
static bool needs_stop(const struct xk_turn *turn)
{
	unsigned int i;

	for (i = 0; i < turn->nr; i++) {
		const struct xk_turn_part *part = &turn->parts[i];

		if (xk_is_patched(part->tune) || xk_detours_must_ask(part->tune, part->other))
			return true;
	}
	return false;
}

/* What the other versions write can be written, when they come into force. */
static bool open_data(struct xk_turn *turn)
{
	unsigned int i;

	for (i = 0; i < turn->nr; i++)
		if (xk_sites_open_data(turn->parts[i].tune, turn->parts[i].other->value))
			return false;
	return true;
}

static void close_data(struct xk_turn *turn)
{
	unsigned int i;

	for (i = 0; i < turn->nr; i++)
		xk_sites_close_data(turn->parts[i].tune);
}

static bool advance(struct xk_turn *turn)
{
	enum xk_turn_phase before = turn->phase;

	/* Without memory for it, as in stop(). */
	if (before != XK_TURN_SETTLING && !open_data(turn))
		return false;
	xk_oops_refresh();
	if ((turn->mode == XK_MODE_NOW && !needs_stop(turn)) || changes_nothing(turn))
		flip_now(turn);
	else
		stop(turn);
	if (turn->phase != XK_TURN_SETTLING)
		return false;
	if (before != XK_TURN_SETTLING)
		flipped(turn);
	return !turn->settling || !turn->settling->nr;
}

/* Makes the next step. True: every thread uses the version in force. */
bool xk_turn_advance(struct xk_turn *turn)
{
	bool over = advance(turn);

	close_data(turn);
	return over;
}

/* Given up after some have gone over; xk_turn_advance() takes them back. */
void xk_turn_revert(struct xk_turn *turn)
{
	unsigned int i;

	turn->phase = XK_TURN_TURNING_BACK;
	turn->reverting = true;
	for (i = 0; i < turn->nr; i++) {
		struct xk_turn_part *part = &turn->parts[i];

		part->unload = false;
		trace_xk_transition_abort(turn, part->tune, part->other->value);
	}
}

static void finish_part(struct xk_turn *turn, struct xk_turn_part *part)
{
	struct xk_tune *tune = part->tune;

	if (turn->phase == XK_TURN_WAITING)
		trace_xk_transition_abort(turn, tune, tune->values->value);
	else
		trace_xk_transition_finish(turn, tune, tune->values->value);
	tune->turn = NULL;
	WRITE_ONCE(tune->values->settling, NULL);
	xk_values_retire(part->other);
	/* What was never tried says nothing about how it is left again. */
	if (turn->phase == XK_TURN_SETTLING && !turn->reverting)
		tune->mode = turn->mode;
	if (part->unload && turn->phase == XK_TURN_SETTLING)
		xk_tune_remove(tune);
	else if (tune->doomed)
		xk_unload_start(tune);
}

/* Stubs of all its tunes in one stop; without memory, of one after the other. */
static void settle_detours(const struct xk_turn *turn)
{
	struct xk_tune **tunes;
	bool detours = false;
	unsigned int i;

	for (i = 0; i < turn->nr; i++)
		detours |= turn->parts[i].tune->detours;
	if (!detours)
		return;
	tunes = tunes_of(turn);
	if (tunes)
		xk_detours_settle(tunes, turn->nr);
	for (i = 0; !tunes && i < turn->nr; i++)
		xk_detours_settle(&turn->parts[i].tune, 1);
	kvfree(tunes);
}

/* It is over: done, taken back, or, if it still waits, never begun. Frees it. */
void xk_turn_finish(struct xk_turn *turn)
{
	unsigned int i;

	/* Nobody settles: versions that ask would be told the one in force. */
	if (turn->phase == XK_TURN_SETTLING)
		settle_detours(turn);

	for (i = 0; i < turn->nr; i++)
		finish_part(turn, &turn->parts[i]);
	xk_oops_refresh();
	xk_settling_free(turn->settling);
	xk_outside_free(turn->scan.outside);
	kvfree(turn->scan.ranges);
	kvfree(turn);
}

/* Nobody waits for it any longer; it goes on by itself. */
void xk_turn_leave(struct xk_turn *turn)
{
	queue_delayed_work(xk_workqueue, &turn->work, turn->interval);
	turn->interval = min_t(unsigned int, 2 * turn->interval, LAST_INTERVAL);
}
