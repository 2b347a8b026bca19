// SPDX-License-Identifier: GPL-2.0-only
/*
 * A transition under way: from one version of its tunes to another, stop by stop, until no thread
 * uses the previous version; or back again. No switch is forced. See docs/transitions.md.
 */
#include <linux/err.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "core/load.h"
#include "core/oops.h"
#include "core/restore.h"
#include "core/sites.h"
#include "core/values.h"
#include "model/trace.h"
#include "transition/transition.h"
#include "transition/unload.h"

/* Interval of looks if no caller waits: short at first. */
#define FIRST_INTERVAL (HZ / 50 + 1)
#define LAST_INTERVAL (HZ / 2)

/* For tracers: how many threads use the version from before. */
static unsigned int nr_settling(const struct xk_live_transition *transition)
{
	return transition->settling ? transition->settling->nr : 0;
}

static void go_on(struct work_struct *work)
{
	struct xk_live_transition *transition =
		container_of(to_delayed_work(work), struct xk_live_transition, work);

	mutex_lock(&xk_lock);
	if (xk_transition_advance(transition))
		xk_transition_finish(transition);
	else
		xk_transition_leave(transition);
	xk_unlock_restored();
}

struct xk_live_transition *xk_transition_create(unsigned int nr, enum xk_mode mode)
{
	struct xk_live_transition *transition;

	transition = kvzalloc(struct_size(transition, tunes, nr), GFP_KERNEL);
	if (!transition)
		return NULL;
	transition->mode = mode;
	transition->interval = FIRST_INTERVAL;
	INIT_DELAYED_WORK(&transition->work, go_on);
	return transition;
}

/* If a module was loaded with code that was not analysed, its safe spans are unknown. */
static int check_scopes(const struct xk_tune *tune, struct xk_error *error)
{
	unsigned int i;

	for (i = 0; i < tune->nr_scopes; i++)
		if (tune->scopes[i].phase == XK_PHASE_BROKEN)
			return xk_refuse(error, -EBADMSG,
					 "%s: %s of module %s differs from the analysed code: only mode now is possible",
					 tune->name, tune->scopes[i].place.symbol,
					 tune->scopes[i].place.module);
	return 0;
}

static int check_backends(const struct xk_tune *tune, s64 value, struct xk_error *error)
{
	const struct xk_backend **at;
	int ret = 0;

	for (at = xk_backends; *at; at++) {
		if ((*at)->accepts)
			ret = (*at)->accepts(tune, value, error);
		if (ret)
			return ret;
	}
	return 0;
}

int xk_transition_add(struct xk_live_transition *transition, struct xk_tune *tune, s64 value,
		      struct xk_live_policy *policy, bool unload, struct xk_error *error)
{
	struct xk_values *values;
	int ret = 0;

	lockdep_assert_held(&xk_lock);
	if (tune->transition)
		return xk_refuse(error, -EBUSY, "%s: %s", tune->name,
				 tune->transition == transition ? "named twice" :
				 "is in transition: see xk status");
	if (transition->mode == XK_MODE_TASK && tune->traits & XK_BACKEND_SHARED)
		return xk_refuse(error, -EOPNOTSUPP,
				 "%s: instructions hold its value for all threads: use mode global, or another backend",
				 tune->name);
	if (transition->mode != XK_MODE_NOW)
		ret = check_scopes(tune, error);
	if (!ret)
		ret = check_backends(tune, value, error);
	if (ret)
		return ret;
	values = xk_values_create(tune, value, policy);
	if (!values)
		return -ENOMEM;
	transition->tunes[transition->nr++] = tune;
	tune->other = values;
	tune->leaves = unload;
	tune->transition = transition;
	trace_xk_transition_start(tune, transition->mode, transition->stops,
				  nr_settling(transition), value);
	return 0;
}

/* The versions have changed, except for the threads that are inside. */
static void flipped(const struct xk_live_transition *transition)
{
	unsigned int i;

	for (i = 0; i < transition->nr; i++) {
		struct xk_tune *tune = transition->tunes[i];

		trace_xk_flip(tune, transition->mode, transition->stops,
			      nr_settling(transition), tune->values->value);
		xk_sites_write(tune, tune->values->value);
	}
}

static void flip_now(struct xk_live_transition *transition)
{
	unsigned int i;

	for (i = 0; i < transition->nr; i++) {
		struct xk_tune *tune = transition->tunes[i];
		struct xk_values *before = tune->values;

		/* The block is complete before a handler can find it. */
		smp_store_release(&tune->values, tune->other);
		tune->other = before;
	}
	transition->phase = XK_TRANSITION_SETTLING;
}

/*
 * If a module was loaded or removed, the ranges differ, and the results of earlier looks say
 * nothing about the new ranges: they are dropped.
 */
static bool update_ranges(struct xk_live_transition *transition)
{
	struct xk_range_set *ranges;

	ranges = xk_range_set_create(transition->tunes, transition->nr,
				     transition->mode != XK_MODE_NOW);
	if (!ranges)
		return false;
	if (transition->scan.ranges && !xk_range_sets_equal(transition->scan.ranges, ranges)) {
		xk_outside_free(transition->scan.outside);
		transition->scan.outside = NULL;
	}
	kvfree(transition->scan.ranges);
	transition->scan.ranges = ranges;
	return true;
}

/*
 * Looks at the threads while they run. Returns whether a stop would make progress. In mode task,
 * the first stop switches all threads that are outside; later stops switch those that have left.
 */
static bool is_worth_a_stop(struct xk_live_transition *transition)
{
	u64 began = ktime_get_ns();

	xk_scan_before(transition);
	transition->looked_ns = ktime_get_ns() - began;
	switch (transition->phase) {
	case XK_TRANSITION_SETTLING:
		if (transition->scan.nr_inside >= transition->settling->nr)
			return false;
		break;
	case XK_TRANSITION_WAITING:
		if (transition->mode != XK_MODE_TASK && transition->scan.nr_inside)
			return false;
		break;
	case XK_TRANSITION_REVERSING:
		break;
	}
	return xk_stop_budget_affords(&transition->budget);
}

/* Returns false without memory for a change. */
static bool collect_changes(struct xk_live_transition *transition)
{
	bool settling = transition->phase == XK_TRANSITION_SETTLING;
	const struct xk_backend **at;

	for (at = xk_backends; *at; at++) {
		struct xk_text_change *change = NULL;

		if ((*at)->change_text)
			change = (*at)->change_text(transition->tunes, transition->nr, settling);
		if (IS_ERR(change))
			return false;
		if (change)
			transition->changes[transition->nr_changes++] = change;
	}
	return true;
}

static void free_changes(struct xk_live_transition *transition, bool made)
{
	unsigned int i;

	for (i = 0; i < transition->nr_changes; i++) {
		struct xk_text_change *change = transition->changes[i];

		if (made)
			change->backend->changed(change, transition->tunes, transition->nr);
		change->backend->free_change(change);
	}
	transition->nr_changes = 0;
}

/* Makes at most one stop. Without memory there is none; the next attempt may have memory. */
static void stop(struct xk_live_transition *transition)
{
	struct xk_settling *unused;
	bool made = false;

	if (!update_ranges(transition) || !is_worth_a_stop(transition))
		return;
	transition->scan.found = xk_settling_create();
	unused = transition->scan.found;
	if (collect_changes(transition) && transition->scan.found)
		made = xk_stop(transition);
	if (made) {
		unused = transition->settling;
		transition->settling = transition->scan.found;
	}
	free_changes(transition, made);
	xk_settling_free(unused);
	transition->scan.found = NULL;
}

/* Both versions hold the same values, and no policy decides: nothing can be mixed. */
static bool changes_nothing(const struct xk_live_transition *transition)
{
	unsigned int i;

	for (i = 0; i < transition->nr; i++) {
		const struct xk_values *values = transition->tunes[i]->values;
		const struct xk_values *other = transition->tunes[i]->other;

		if (values->value != other->value || values->policy || other->policy)
			return false;
	}
	return true;
}

/* Whether text must change with the versions. */
static bool needs_stop(const struct xk_live_transition *transition)
{
	const struct xk_backend **at;
	unsigned int i;

	for (i = 0; i < transition->nr; i++)
		for (at = xk_backends; *at; at++)
			if ((*at)->needs_stop &&
			    (*at)->needs_stop(transition->tunes[i], transition->tunes[i]->other))
				return true;
	return false;
}

/* Reserves what the sites need to write the other versions when they come into force. */
static bool open_sites(struct xk_live_transition *transition)
{
	unsigned int i;

	for (i = 0; i < transition->nr; i++)
		if (xk_sites_open(transition->tunes[i], transition->tunes[i]->other->value))
			return false;
	return true;
}

static void close_sites(struct xk_live_transition *transition)
{
	unsigned int i;

	for (i = 0; i < transition->nr; i++)
		xk_sites_close(transition->tunes[i]);
}

static bool advance(struct xk_live_transition *transition)
{
	enum xk_transition_phase before = transition->phase;

	/* Without memory there is no step, as in stop(). */
	if (before != XK_TRANSITION_SETTLING && !open_sites(transition))
		return false;
	xk_oops_refresh();
	if ((transition->mode == XK_MODE_NOW && !needs_stop(transition)) ||
	    changes_nothing(transition))
		flip_now(transition);
	else
		stop(transition);
	if (transition->phase != XK_TRANSITION_SETTLING)
		return false;
	if (before != XK_TRANSITION_SETTLING)
		flipped(transition);
	return !transition->settling || !transition->settling->nr;
}

bool xk_transition_advance(struct xk_live_transition *transition)
{
	bool over;

	lockdep_assert_held(&xk_lock);
	over = advance(transition);
	close_sites(transition);
	return over;
}

void xk_transition_revert(struct xk_live_transition *transition)
{
	unsigned int i;

	lockdep_assert_held(&xk_lock);
	transition->phase = XK_TRANSITION_REVERSING;
	transition->reverting = true;
	for (i = 0; i < transition->nr; i++) {
		struct xk_tune *tune = transition->tunes[i];

		tune->leaves = false;
		trace_xk_transition_abort(tune, transition->mode, transition->stops,
					  nr_settling(transition), tune->other->value);
	}
}

static void finish_tune(struct xk_live_transition *transition, struct xk_tune *tune)
{
	bool done = transition->phase == XK_TRANSITION_SETTLING;

	if (transition->phase == XK_TRANSITION_WAITING)
		trace_xk_transition_abort(tune, transition->mode, transition->stops,
					  nr_settling(transition), tune->values->value);
	else
		trace_xk_transition_finish(tune, transition->mode, transition->stops,
					   nr_settling(transition), tune->values->value);
	tune->transition = NULL;
	WRITE_ONCE(tune->values->settling, NULL);
	xk_values_retire(tune->other);
	tune->other = NULL;
	/* Only a completed transition shows in which mode the tune can be unloaded. */
	if (done && !transition->reverting)
		tune->mode = transition->mode;
	if (tune->leaves && done)
		xk_tune_remove(tune);
	else if (tune->doomed)
		xk_unload_start(tune);
}

void xk_transition_finish(struct xk_live_transition *transition)
{
	const struct xk_backend **at;
	unsigned int i;

	lockdep_assert_held(&xk_lock);
	/*
	 * No thread uses the previous version: a handler that runs now uses the version in force.
	 */
	if (transition->phase == XK_TRANSITION_SETTLING)
		for (at = xk_backends; *at; at++)
			if ((*at)->settle)
				(*at)->settle(transition->tunes, transition->nr);

	for (i = 0; i < transition->nr; i++)
		finish_tune(transition, transition->tunes[i]);
	xk_oops_refresh();
	xk_settling_free(transition->settling);
	xk_outside_free(transition->scan.outside);
	kvfree(transition->scan.ranges);
	kvfree(transition);
}

void xk_transition_leave(struct xk_live_transition *transition)
{
	lockdep_assert_held(&xk_lock);
	queue_delayed_work(xk_workqueue, &transition->work, transition->interval);
	transition->interval = min_t(unsigned int, 2 * transition->interval, LAST_INTERVAL);
}
