// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes the jumps of probes, many in one stop. A new jump waits until no thread is in the middle
 * of its window. A jump that gets another point is redirected to new slots: threads may still be in
 * the old ones.
 */
#include <linux/delay.h>
#include <linux/list_sort.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "backend/guard.h"
#include "backend/window.h"
#include "probe/jump.h"
#include "probe/shield.h"
#include "probe/relay.h"
#include "text/internal.h"
#include "text/poke.h"
#include "text/stub.h"
#include "transition/stack.h"

/* A thread that was preempted in a window leaves it when it runs again. */
#define ATTEMPTS 12

static const char IN_WINDOW[] = "a thread stays in the middle of these instructions";

/* Jumps ascending by address. */
struct batch {
	unsigned int nr;
	struct xk_jump **jumps;
	struct xk_pokes *pokes;
	struct xk_outside *outside;	/* from the look before the stop */
	bool unreadable;		/* a thread may be anywhere */
};

/*
 * The frame is in a stub of an unloaded tune. The thread returns to the end of that stub's window,
 * which may be in the middle of one of ours.
 */
static bool note_stub(const struct xk_frame *frame, const struct batch *batch)
{
	bool noted = false;
	unsigned int i;

	for (i = 0; i < batch->nr; i++) {
		const struct xk_window *window = &batch->jumps[i]->window;

		if (!xk_stub_overlaps(frame->address, window->address,
				      window->address + window->len))
			continue;
		batch->jumps[i]->entered = true;
		noted = true;
	}
	return noted;
}

/* Notes the window that the frame is in the middle of. */
static bool note_frame(const struct xk_frame *frame, void *data)
{
	const struct batch *batch = data;
	unsigned int low = 0, high = batch->nr;
	const struct xk_window *window;

	if (frame->in_stub)
		return note_stub(frame, batch);
	/* The last window that begins before the address. */
	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (batch->jumps[middle]->window.address < frame->address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return false;
	window = &batch->jumps[low - 1]->window;
	if (frame->address >= window->address + window->len)
		return false;
	batch->jumps[low - 1]->entered = true;
	return true;
}

static void look_at(struct task_struct *task, void *data)
{
	struct batch *batch = data;
	const struct xk_look look = { .stands = note_frame, .data = batch };
	struct xk_blocker seen;

	if (!xk_has_stack(task) || xk_is_outside(batch->outside, task))
		return;
	xk_stack_look_stopped(task, &look, &seen);
	batch->unreadable |= seen.unreliable;
}

static void forget(struct batch *batch)
{
	unsigned int i;

	batch->unreadable = false;
	for (i = 0; i < batch->nr; i++)
		batch->jumps[i]->entered = false;
}

static void look_before(struct batch *batch)
{
	const struct xk_look look = { .stands = note_frame, .data = batch };

	forget(batch);
	batch->outside = xk_look_at_all(&look, batch->outside, NULL, NULL);
}

/* In a stop. */
static void look(struct batch *batch)
{
	forget(batch);
	if (!xk_visit_threads(look_at, batch))
		batch->unreadable = true;
}

static void write_jump(const struct xk_jump *jump, const struct xk_jump_code *code,
		       struct xk_poke *poke)
{
	unsigned int len = jump->window.len;

	if (xk_jump_is_short(jump)) {
		xk_relay_write(jump, code, poke);
		return;
	}
	poke->address = jump->window.address;
	poke->meanwhile = code->slots[0] + XK_SLOT_CODE;
	poke->len = jump->window.len;
	if (jump->is_host)
		len -= sizeof(jump->relay);
	xk_write_jump(poke->bytes, len, poke->address, poke->meanwhile);
	memcpy(poke->bytes + len, jump->relay, poke->len - len);
}

bool xk_jump_is_intact(const struct xk_jump *jump)
{
	struct xk_poke poke;

	if (xk_jump_is_short(jump))
		return xk_relay_is_intact(jump);
	write_jump(jump, jump->code, &poke);
	return xk_text_is(poke.address, poke.bytes, poke.len) &&
	       !xk_window_is_probed(&jump->window);
}

/* In a stop. Returns NULL if the jump may be written, or the reason against it. */
static const char *why_not(const struct batch *batch, const struct xk_jump *jump)
{
	const struct xk_window *window = &jump->window;
	const char *why = xk_jump_is_short(jump) ? xk_relay_why_not(jump) : NULL;

	if (why)
		return why;
	if (xk_jump_is_armed(jump))
		return xk_jump_is_intact(jump) ? NULL :
						 "another kprobe is on the jump of a probe";
	if (xk_window_is_guarded(window))
		return "a guard probe for another place lies in these instructions";
	if (!xk_text_is(window->address, window->bytes, window->len) ||
	    xk_window_is_probed(window))
		return "another kprobe is here";
	if (xk_jump_may_come(jump->guards, window) ||
	    xk_jump_may_come_over_targets(jump->guards, window, xk_shielded(jump->shield)))
		return "another kprobe is just before this instruction, or a target of a branch";
	if (batch->unreadable || jump->entered)
		return IN_WINDOW;
	return NULL;
}

static bool choose(void *data)
{
	struct batch *batch = data;
	unsigned int i;

	look(batch);
	batch->pokes->nr = 0;
	for (i = 0; i < batch->nr; i++) {
		struct xk_jump *jump = batch->jumps[i];

		if (!jump->wanted)
			continue;
		jump->why = why_not(batch, jump);
		if (!jump->why && jump->shield && !xk_shield_write(jump->shield, batch->pokes))
			jump->why = "another kprobe is at the end of the function";
		if (jump->why)
			continue;
		write_jump(jump, jump->next, &batch->pokes->at[batch->pokes->nr++]);
		if (xk_jump_is_short(jump))
			xk_relay_aim(jump, jump->next);
		swap(jump->code, jump->next);
		jump->claim.written = true;
		jump->wanted = false;
	}
	return batch->pokes->nr;
}

static bool may_wait(const struct batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->nr; i++)
		if (batch->jumps[i]->wanted && batch->jumps[i]->why == IN_WINDOW)
			return true;
	return false;
}

/* Returns the number of stops. */
static unsigned int arm_batch(struct batch *batch)
{
	unsigned int attempt;

	for (attempt = 0; attempt < ATTEMPTS; ) {
		look_before(batch);
		xk_probes_lock();
		xk_poke_stopped(batch->pokes, choose, batch);
		xk_probes_unlock();
		attempt++;
		if (!may_wait(batch))
			break;
		xk_window_wait(attempt - 1);
	}
	xk_outside_free(batch->outside);
	batch->outside = NULL;
	return attempt;
}

static void prepare(struct xk_jump *jump)
{
	jump->why = "the machine could not be stopped";
	if (!xk_jump_build(jump))
		jump->why = "its code is too long for a slot, or there is no memory";
	else if (!xk_jump_is_armed(jump))
		xk_guards_complete(jump->guards, &jump->window);
	if (jump->wanted && xk_jump_is_short(jump) && !xk_jump_is_armed(jump))
		xk_relay_aim(jump, jump->next);
}

static void mark_points(struct xk_jump *jump)
{
	unsigned int i;

	for (i = 0; i < jump->window.nr; i++) {
		struct xk_point *point = jump->points[i];

		if (!point)
			continue;
		point->in_code = true;
		point->saves_all = point->wants_all;
	}
}

/* What is left of a change, made or not. */
static void settle(struct xk_jump *jump)
{
	if (jump->wanted)
		xk_jump_code_free(jump->next);
	else
		xk_jump_code_retire(jump->next);
	jump->next = NULL;
	if (!jump->wanted && !jump->why) {
		mark_points(jump);
		list_del_init(&jump->list);
	}
	jump->wanted = false;
}

static int by_address(void *unused, const struct list_head *a, const struct list_head *b)
{
	const struct xk_jump *left = list_entry(a, struct xk_jump, list);
	const struct xk_jump *right = list_entry(b, struct xk_jump, list);

	return left->window.address > right->window.address;
}

static unsigned int arm_kind(struct list_head *jumps, struct batch *batch, bool are_short)
{
	unsigned int stops = 0;
	struct xk_jump *jump;

	batch->nr = 0;
	list_for_each_entry(jump, jumps, list) {
		if (!jump->wanted || xk_jump_is_short(jump) != are_short)
			continue;
		batch->jumps[batch->nr++] = jump;
		if (batch->nr < XK_JUMPS_PER_STOP)
			continue;
		stops += arm_batch(batch);
		batch->nr = 0;
	}
	return batch->nr ? stops + arm_batch(batch) : stops;
}

unsigned int xk_jumps_arm(struct list_head *jumps)
{
	struct xk_jump **some = kvmalloc_array(XK_JUMPS_PER_STOP, sizeof(*some), GFP_KERNEL);
	struct batch batch = { .jumps = some, .pokes = xk_pokes_create(XK_POKES_PER_STOP) };
	struct xk_jump *jump, *next;
	unsigned int stops = 0;

	list_sort(NULL, jumps, by_address);
	list_for_each_entry(jump, jumps, list) {
		jump->why = "no memory";
		if (some && batch.pokes)
			prepare(jump);
	}
	if (some && batch.pokes) {
		stops += arm_kind(jumps, &batch, false);
		/* Their relays are written. */
		stops += arm_kind(jumps, &batch, true);
	}
	list_for_each_entry_safe(jump, next, jumps, list)
		settle(jump);
	kvfree(batch.pokes);
	kvfree(some);
	return stops;
}
