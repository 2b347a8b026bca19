// SPDX-License-Identifier: GPL-2.0-only
/*
 * Several stubs in one stop: where threads are in relation to their windows and stubs. detour.c
 * uses this to write jumps, retire.c to remove them.
 */
#include "backend/detour/batch.h"
#include "text/poke.h"
#include "text/stub.h"
#include "transition/stack.h"

/*
 * The frame is in a stub of an unloaded tune, whose window contained some of these instructions.
 * The thread executes copies of them and returns to the end of that window.
 */
static bool is_in_stub_of(const struct xk_frame *frame, const struct xk_window *window)
{
	return frame->in_stub && xk_stub_overlaps(frame->address, window->address,
						  window->address + window->len);
}

/* Notes the windows and stubs that the frame is in. */
static bool note_frame(const struct xk_frame *frame, void *data)
{
	unsigned long address = frame->address;
	struct xk_stub_batch *batch = data;
	bool noted = false;
	unsigned int i;

	for (i = 0; i < batch->nr; i++) {
		struct xk_stub *stub = batch->stubs[i];
		const struct xk_window *window = &stub->window;
		bool in_stub = xk_in_stub(stub, address);
		bool entered = (address > window->address &&
				address < window->address + window->len) ||
			       (!in_stub && is_in_stub_of(frame, window));

		stub->entered |= entered;
		stub->empty &= !in_stub;
		noted |= entered || in_stub;
	}
	return noted;
}

static void look_for_stubs(struct task_struct *task, void *data)
{
	struct xk_stub_batch *batch = data;
	const struct xk_look look = { .stands = note_frame, .data = batch };
	struct xk_blocker seen;

	if (!xk_has_stack(task) || xk_is_outside(batch->outside, task))
		return;
	xk_stack_look_stopped(task, &look, &seen);
	batch->unreadable |= seen.unreliable;
}

static void forget_threads(struct xk_stub_batch *batch)
{
	unsigned int i;

	batch->unreadable = false;
	for (i = 0; i < batch->nr; i++) {
		batch->stubs[i]->entered = false;
		batch->stubs[i]->empty = true;
	}
}

void xk_batch_look(struct xk_stub_batch *batch)
{
	unsigned int i;

	forget_threads(batch);
	if (!xk_visit_threads(look_for_stubs, batch))
		batch->unreadable = true;
	for (i = 0; i < batch->nr; i++) {
		batch->stubs[i]->entered |= batch->unreadable;
		batch->stubs[i]->empty &= !batch->unreadable;
	}
}

void xk_batch_look_before(struct xk_stub_batch *batch)
{
	const struct xk_look look = { .stands = note_frame, .data = batch };

	forget_threads(batch);
	batch->outside = xk_look_at_all(&look, batch->outside, NULL, NULL);
}
