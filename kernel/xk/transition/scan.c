// SPDX-License-Identifier: GPL-2.0-only
/* Which threads are inside the scopes of a transition. stack.c reads their stacks. */
#include <linux/mm.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "transition/ignore.h"
#include "text/internal.h"
#include "transition/scan.h"
#include "text/stub.h"
#include "transition/transition.h"
#include "model/tune.h"

static int by_start(const void *a, const void *b)
{
	const struct xk_addresses *left = a, *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

static void merge(struct xk_range_set *set)
{
	unsigned int i, nr = 0;

	sort(set->at, set->nr, sizeof(set->at[0]), by_start, NULL);
	for (i = 0; i < set->nr; i++) {
		if (nr && set->at[i].start <= set->at[nr - 1].end)
			set->at[nr - 1].end = max(set->at[nr - 1].end, set->at[i].end);
		else
			set->at[nr++] = set->at[i];
	}
	set->nr = nr;
}

static void put_range(struct xk_range_set *set, unsigned long start, unsigned long end)
{
	set->nr++;
	set->at[set->nr - 1].start = start;
	set->at[set->nr - 1].end = end;
}

/* Adds the scopes whose code is loaded and verified. */
static void add_scopes(struct xk_range_set *set, const struct xk_tune *tune)
{
	unsigned int k, r;

	for (k = 0; k < tune->nr_scopes; k++) {
		const struct xk_live_scope *scope = &tune->scopes[k];
		unsigned long function = scope->place.function;

		if (scope->phase != XK_PHASE_READY)
			continue;
		for (r = 0; r < scope->nr_ranges; r++)
			put_range(set, function + scope->ranges[r].start,
				  function + scope->ranges[r].end);
	}
}

/* Ranges of instructions that change with the versions. If `to` is NULL, only their number. */
static unsigned int keep_clear(const struct xk_tune *tune, struct xk_addresses *to)
{
	const struct xk_backend **at;
	unsigned int nr = 0;

	for (at = xk_backends; *at; at++)
		if ((*at)->keep_clear)
			nr += (*at)->keep_clear(tune, to ? to + nr : NULL);
	return nr;
}

static unsigned int count_ranges(const struct xk_tune *tune)
{
	unsigned int k, nr = keep_clear(tune, NULL);

	for (k = 0; k < tune->nr_scopes; k++)
		nr += tune->scopes[k].nr_ranges;
	return nr;
}

/* Without `scopes`, only the instructions that must change atomically. */
struct xk_range_set *xk_range_set_create(struct xk_tune *const *tunes, unsigned int nr,
					 bool scopes)
{
	struct xk_range_set *set;
	unsigned int i, capacity = 0;

	for (i = 0; i < nr; i++)
		capacity += count_ranges(tunes[i]);
	set = kvzalloc(struct_size(set, at, capacity), GFP_KERNEL);
	if (!set)
		return NULL;
	for (i = 0; i < nr; i++) {
		if (scopes)
			add_scopes(set, tunes[i]);
		set->nr += keep_clear(tunes[i], set->at + set->nr);
	}
	merge(set);
	return set;
}

bool xk_range_sets_equal(const struct xk_range_set *a, const struct xk_range_set *b)
{
	return a->nr == b->nr && !memcmp(a->at, b->at, a->nr * sizeof(a->at[0]));
}

static bool contains(const struct xk_range_set *set, unsigned long address)
{
	unsigned int low = 0, high = set->nr;

	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (address < set->at[middle].start)
			high = middle;
		else if (address >= set->at[middle].end)
			low = middle + 1;
		else
			return true;
	}
	return false;
}

/* Whether the site belongs to a tune of this transition. */
static bool changes(const struct xk_live_site *site, const struct xk_live_transition *transition)
{
	return site && site->tune->transition == transition;
}

/* A thread in this stub executes old copies of instructions that lie in a range. */
static bool has_copies(unsigned long stub, const struct xk_range_set *ranges)
{
	unsigned int i;

	for (i = 0; i < ranges->nr; i++)
		if (xk_stub_overlaps(stub, ranges->at[i].start, ranges->at[i].end))
			return true;
	return false;
}

/*
 * Whether the instruction of a frame is in a range. That is the interrupted instruction, or the
 * pending call, which ends at the return address. If the callee was interrupted, the call may
 * already have returned except for a jump, because a return thunk has no frame of its own; then the
 * return address counts, too. A thread in a stub of a tune in this transition has already chosen a
 * value, so it is inside. A thread in the stub of an unloaded tune is inside, too, if the stub has
 * copies of instructions in a range.
 */
static bool stands_in(const struct xk_frame *frame, void *data)
{
	const struct xk_live_transition *transition = data;
	const struct xk_range_set *ranges = transition->scan.ranges;

	if (frame->in_stub)
		return changes(xk_stub_site(frame->address), transition) ||
		       has_copies(frame->address, ranges);
	if (frame->interrupted)
		return contains(ranges, frame->address);
	return contains(ranges, frame->address - 1) ||
	       (frame->calls_interrupted && contains(ranges, frame->address));
}

static void report(struct xk_scan *scan, struct task_struct *task,
		   const struct xk_blocker *seen)
{
	struct xk_blocker *to = &scan->blockers[scan->nr_blockers];

	if (scan->nr_blockers == XK_MAX_BLOCKERS)
		return;
	*to = *seen;
	to->pid = task_pid_nr(task);
	memcpy(to->comm, task->comm, sizeof(to->comm));
	scan->nr_blockers++;
}

/*
 * Whether the thread is ignored: its stack is unreadable, no readable frame is inside, and all
 * tunes ignore it.
 */
static bool is_left_out(const struct xk_live_transition *transition,
			const struct task_struct *task, const struct xk_blocker *seen)
{
	return seen->unreliable && !seen->stands && xk_is_ignored(transition, task);
}

/* Stores the thread in scan.found if it is inside. A thread that runs now is a stopper. */
static void look_for_inside(struct task_struct *task, void *data)
{
	struct xk_live_transition *transition = data;
	struct xk_scan *scan = &transition->scan;
	const struct xk_look look = { .stands = stands_in, .data = transition };
	struct xk_settling *found = scan->found;

	if ((scan->except && xk_settling_has(scan->except, task)) || !xk_has_stack(task) ||
	    xk_is_outside(scan->outside, task) ||
	    !xk_stack_look_stopped(task, &look, &scan->seen) ||
	    is_left_out(transition, task, &scan->seen))
		return;
	report(scan, task, &scan->seen);
	if (found->nr == found->capacity) {
		scan->overflow = true;
		return;
	}
	get_task_struct(task);
	found->tasks[found->nr++] = task;
}

static int by_address(const void *a, const void *b)
{
	const struct task_struct *left = *(struct task_struct *const *)a;
	const struct task_struct *right = *(struct task_struct *const *)b;

	return left < right ? -1 : left > right;
}

static void start(struct xk_scan *scan, const struct xk_settling *except)
{
	scan->nr_blockers = 0;
	scan->overflow = false;
	scan->except = except;
}

/* In a stop: looks at every thread but those of `except`, which may be NULL. */
void xk_scan_all(struct xk_live_transition *transition, const struct xk_settling *except)
{
	struct xk_settling *found = transition->scan.found;

	start(&transition->scan, except);
	if (!xk_visit_threads(look_for_inside, transition))
		transition->scan.overflow = true;
	sort(found->tasks, found->nr, sizeof(found->tasks[0]), by_address, NULL);
}

/* In a stop: looks at the threads of `before`. */
void xk_scan_again(struct xk_live_transition *transition, const struct xk_settling *before)
{
	unsigned int i;

	start(&transition->scan, NULL);
	for (i = 0; i < before->nr; i++)
		look_for_inside(before->tasks[i], transition);
}

static void count_inside(struct task_struct *task, const struct xk_blocker *seen, void *data)
{
	struct xk_live_transition *transition = data;

	if (is_left_out(transition, task, seen))
		return;
	transition->scan.nr_inside++;
	report(&transition->scan, task, seen);
}

/* While the machine runs: counts the threads of `settling` that are switched out and inside. */
static void look_again(struct xk_live_transition *transition,
		       const struct xk_settling *settling)
{
	const struct xk_look look = { .stands = stands_in, .data = transition };
	unsigned int i;

	for (i = 0; i < settling->nr; i++)
		if (xk_stack_look_running(settling->tasks[i], &look, &transition->scan.seen))
			count_inside(settling->tasks[i], &transition->scan.seen, transition);
}

void xk_scan_before(struct xk_live_transition *transition)
{
	const struct xk_look look = { .stands = stands_in, .data = transition };

	start(&transition->scan, NULL);
	transition->scan.nr_inside = 0;
	if (transition->phase == XK_TRANSITION_SETTLING)
		look_again(transition, transition->settling);
	else
		transition->scan.outside = xk_look_at_all(&look, transition->scan.outside,
							  count_inside, transition);
}

/* Handlers call this, too. */
bool notrace xk_settling_has(const struct xk_settling *settling, const struct task_struct *task)
{
	unsigned int low = 0, high = settling->nr;

	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (settling->tasks[middle] == task)
			return true;
		if (settling->tasks[middle] < task)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

NOKPROBE_SYMBOL(xk_settling_has);

/* With room for all existing threads. */
struct xk_settling *xk_settling_create(void)
{
	struct xk_settling *settling;
	unsigned int nr = xk_count_threads();

	settling = kvzalloc(struct_size(settling, tasks, nr), GFP_KERNEL);
	if (settling)
		settling->capacity = nr;
	return settling;
}

/* Handlers may still read the list, so it is freed after a grace period. */
void xk_settling_free(const struct xk_settling *settling)
{
	struct xk_settling *mine = (struct xk_settling *)settling;
	unsigned int i;

	if (!settling)
		return;
	for (i = 0; i < settling->nr; i++)
		put_task_struct(settling->tasks[i]);
	kvfree_rcu(mine, rcu);
}
