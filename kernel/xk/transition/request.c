// SPDX-License-Identifier: GPL-2.0-only
/* Transitions that user space requests, with a timeout and a report. */
#include <linux/delay.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "core/restore.h"
#include "transition/request.h"
#include "transition/transition.h"

/* Delay between two attempts: short at first, because most spans are short. */
#define FIRST_DELAY_US 100
#define LAST_DELAY_US 50000

static void print_report(const struct xk_live_transition *transition, char *text, size_t size)
{
	size_t used = 0;
	unsigned int i, k;

	text[0] = '\0';
	for (i = 0; i < transition->scan.nr_blockers; i++) {
		const struct xk_blocker *blocker = &transition->scan.blockers[i];

		used += scnprintf(text + used, size - used, "%d (%s)%s\n", blocker->pid,
				  blocker->comm,
				  blocker->unreliable ? ": its stack cannot be read" : "");
		for (k = 0; k < blocker->nr; k++)
			used += scnprintf(text + used, size - used, "    %pS\n",
					  (void *)blocker->stack[k]);
	}
}

static unsigned int blocking(const struct xk_live_transition *transition)
{
	if (transition->settling && transition->settling->nr)
		return transition->settling->nr;
	return transition->scan.nr_blockers;
}

static void refuse_blocked(const struct xk_live_transition *transition, int ret,
			   struct xk_error *error)
{
	const struct xk_blocker *first = &transition->scan.blockers[0];

	if (transition->obstacle)
		xk_refuse(error, ret, "given up: something else changed or probes %pS",
			  (void *)transition->obstacle);
	else if (!transition->scan.nr_blockers)
		xk_refuse(error, ret, "given up: no memory to check the threads");
	else
		xk_refuse(error, ret, "%s: %u threads are inside, the first is %d (%s)",
			  ret == -EINTR ? "interrupted" : "given up", blocking(transition),
			  first->pid, first->comm);
}

/* A look at many threads takes time. This limits looks to a twentieth of a CPU. */
#define LOOKED_SHARE 20

/* Releases xk_lock for `delay` microseconds. Returns the next delay. */
static unsigned int pause(const struct xk_live_transition *transition, unsigned int delay)
{
	u64 looked_us = div_u64(transition->looked_ns, NSEC_PER_USEC);

	delay = max_t(u64, delay, LOOKED_SHARE * looked_us);
	mutex_unlock(&xk_lock);
	if (delay < 10000)
		usleep_range(delay, 2 * delay);
	else
		msleep_interruptible(delay / 1000);
	mutex_lock(&xk_lock);
	return min_t(unsigned int, 2 * delay, LAST_DELAY_US);
}

/*
 * Advances the transition until it is over, or until its timeout. Then reverses it, with the same
 * timeout. Frees the transition, or leaves it to its work item.
 */
static int drive(struct xk_live_transition *transition, struct xk_transition *request,
		 char *report, struct xk_error *error)
{
	u64 bound = (u64)request->timeout_ms * NSEC_PER_MSEC;
	u64 deadline = ktime_get_ns() + bound;
	unsigned int delay = FIRST_DELAY_US;
	int ret = 0;

	while (!xk_transition_advance(transition)) {
		int stop = signal_pending(current) ? -EINTR :
			   ktime_get_ns() >= deadline ? -ETIMEDOUT : 0;

		request->stops = transition->stops;
		if (!stop) {
			delay = pause(transition, delay);
			continue;
		}
		if (report)
			print_report(transition, report, request->report_len);
		if (!ret)
			refuse_blocked(transition, stop, error);
		ret = ret ?: stop;
		if (transition->phase == XK_TRANSITION_WAITING)
			break;
		if (transition->reverting) {
			request->outcome = XK_OUTCOME_REVERTING;
			xk_transition_leave(transition);
			return ret;
		}
		xk_transition_revert(transition);
		deadline = ktime_get_ns() + bound;
		delay = FIRST_DELAY_US;
	}
	request->stops = transition->stops;
	request->outcome = ret ? XK_OUTCOME_UNCHANGED : XK_OUTCOME_DONE;
	xk_transition_finish(transition);
	return ret;
}

static int refuse_value(const struct xk_tune *tune, s64 value, struct xk_error *error)
{
	const unsigned int nr = tune->nr_compiled;
	const char *plural = nr == 1 ? "" : "s";

	if (tune->min > tune->max)
		return xk_refuse(error, -ERANGE,
				 "%s: %lld is not one of the %u compiled value%s from %lld to %lld",
				 tune->name, value, nr, plural, tune->compiled[0],
				 tune->compiled[nr - 1]);
	if (nr)
		return xk_refuse(error, -ERANGE,
				 "%s: %lld is outside the proved range %lld..%lld and not one of the %u compiled value%s",
				 tune->name, value, tune->min, tune->max, nr, plural);
	return xk_refuse(error, -ERANGE, "%s: %lld is outside the proved range %lld..%lld",
			 tune->name, value, tune->min, tune->max);
}

static int add_change(struct xk_live_transition *transition, struct file *caller,
		      const struct xk_change *change, struct xk_error *error)
{
	bool unload = change->flags & XK_CHANGE_UNLOAD;
	bool policy = change->flags & XK_CHANGE_POLICY;
	struct xk_tune *tune = xk_tune_find_owned(caller, change->id, error);
	s64 value;

	if (IS_ERR(tune))
		return PTR_ERR(tune);
	if (change->flags & ~(XK_CHANGE_UNLOAD | XK_CHANGE_POLICY) ||
	    (unload && (change->value || policy)))
		return xk_refuse(error, -EINVAL,
				 "%s: unknown flags %#x, or a value given for an unload",
				 tune->name, change->flags);
	if (transition->mode < tune->least_mode)
		return xk_refuse(error, -EKEYREJECTED,
				 "%s: signed for mode %s or a stronger one", tune->name,
				 tune->least_mode == XK_MODE_TASK ? "task" : "global");
	value = unload ? tune->default_value : change->value;
	if (!xk_tune_accepts(tune, value))
		return refuse_value(tune, value, error);
	if (policy && !tune->policy)
		return xk_refuse(error, -EINVAL, "%s: has no policy", tune->name);
	return xk_transition_add(transition, tune, value, policy ? tune->policy : NULL, unload,
				 error);
}

int xk_transition(struct file *caller, struct xk_transition *request,
		  struct xk_change *changes, char *report, struct xk_error *error)
{
	u64 started = ktime_get_ns();
	struct xk_live_transition *transition;
	unsigned int i;
	int ret = 0;

	transition = xk_transition_create(request->nr_changes, request->mode);
	if (!transition)
		return -ENOMEM;
	mutex_lock(&xk_lock);
	for (i = 0; i < request->nr_changes && !ret; i++)
		ret = add_change(transition, caller, &changes[i], error);
	if (ret)
		xk_transition_finish(transition);
	else
		ret = drive(transition, request, report, error);
	xk_unlock_restored();
	request->elapsed_ns = ktime_get_ns() - started;
	return ret;
}

int xk_transition_report(u32 id, char *report, size_t size)
{
	struct xk_tune *tune;
	int ret = -ENOENT;

	mutex_lock(&xk_lock);
	tune = xk_tune_find(id);
	if (tune) {
		report[0] = '\0';
		if (tune->transition)
			print_report(tune->transition, report, size);
		ret = 0;
	}
	mutex_unlock(&xk_lock);
	return ret;
}

u32 xk_transition_state(const struct xk_tune *tune, unsigned int *nr_blocking)
{
	const struct xk_live_transition *transition = tune->transition;

	*nr_blocking = 0;
	if (!transition)
		return tune->doomed ? XK_STATE_UNLOADING : XK_STATE_STABLE;
	*nr_blocking = blocking(transition);
	if (transition->reverting)
		return XK_STATE_REVERTING;
	return tune->leaves ? XK_STATE_UNLOADING : XK_STATE_CHANGING;
}
