// SPDX-License-Identifier: GPL-2.0-only
/*
 * The detour backend: one jump replaces the instructions at a site. It leads to a stub, which runs
 * the update and the replaced instructions. There is no trap, and no execution is missed. See
 * window.c for where a detour is possible, stub_code.c for the stub, and retire.c for the removal
 * of jumps.
 */
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "backend/detour/batch.h"
#include "backend/window.h"
#include "backend/detour/detour.h"
#include "backend/detour/stub_code.h"
#include "backend/guard.h"
#include "text/internal.h"
#include "text/poke.h"
#include "transition/stack.h"

struct xk_stub *xk_detour_stub(const struct xk_live_site *site)
{
	if (site->backend != &xk_backend_detour)
		return NULL;
	return (struct xk_stub *)site->private.words[0];
}

void xk_detour_set_stub(struct xk_live_site *site, struct xk_stub *stub)
{
	site->private.words[0] = (unsigned long)stub;
}

/* A thread that was preempted in the window leaves it when it runs again. */
#define ARM_ATTEMPTS 12

static const char IN_WINDOW[] = "a thread stays in the middle of these instructions";

/* In a stop. Returns NULL if the stub may be armed, or the reason against it. */
static const char *why_not_armed(const struct xk_stub_batch *batch, const struct xk_stub *stub)
{
	const struct xk_window *window = &stub->window;

	if (xk_window_is_guarded(window))
		return "a guard probe for another site lies in these instructions";
	if (!xk_text_is(window->address, window->bytes, window->len) || xk_window_is_probed(window))
		return "another kprobe was registered here";
	if (xk_jump_may_come(stub->guards, &stub->window))
		return "another kprobe was registered just before this instruction";
	if (stub->entered)
		return IN_WINDOW;
	return NULL;
}

/* In a stop. Selects the stubs that may be armed. Returns false if there are none. */
static bool choose_to_arm(void *data)
{
	struct xk_stub_batch *batch = data;
	unsigned int i;

	xk_batch_look(batch);
	batch->pokes->nr = 0;
	for (i = 0; i < batch->nr; i++) {
		struct xk_stub *stub = batch->stubs[i];

		stub->why = stub->armed ? NULL : why_not_armed(batch, stub);
		if (stub->armed || stub->why)
			continue;
		xk_jump_of(stub, &batch->pokes->at[batch->pokes->nr++]);
		stub->armed = true;
	}
	return batch->pokes->nr;
}

/* Before a jump leads to the stub. During a transition the stub calls the handler. */
static void set_path(struct xk_stub *stub)
{
	const struct xk_tune *tune = stub->site->tune;
	enum xk_stub_path wanted = tune->transition ? XK_PATH_HANDLER :
						      xk_stub_path_of(stub, tune->values);
	struct xk_poke poke;

	xk_stub_set_values(stub, tune->values);
	if (stub->path == wanted)
		return;
	xk_stub_select(stub, wanted, &poke);
	xk_text_lock();
	xk_text_write(poke.address, poke.bytes, poke.len);
	xk_text_unlock();
	stub->path = wanted;
}

/* Whether some sites could not be armed now, but may be in a later attempt. */
static bool may_wait(const struct xk_stub_batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->nr; i++)
		if (!batch->stubs[i]->armed && batch->stubs[i]->why == IN_WINDOW)
			return true;
	return false;
}

static int refuse_unarmed(const struct xk_stub_batch *batch, struct xk_error *error)
{
	unsigned int i;

	for (i = 0; i < batch->nr; i++) {
		const struct xk_stub *stub = batch->stubs[i];

		if (!stub->armed)
			return xk_refuse(error, -EBUSY, "%s+0x%x: %s", stub->site->place.symbol,
					 stub->site->offset,
					 stub->why ?: "the machine could not be stopped");
	}
	return 0;
}

/* One stop, unless threads are in the middle of windows. */
static int detour_arm(struct xk_live_site **sites, unsigned int nr, struct xk_error *error)
{
	struct xk_stub *stubs[XK_BATCH];
	struct xk_stub_batch batch = { .nr = nr, .stubs = stubs };
	unsigned int i, attempt;

	batch.pokes = xk_pokes_create(nr);
	if (!batch.pokes)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		stubs[i] = xk_detour_stub(sites[i]);
		xk_guards_complete(stubs[i]->guards, &stubs[i]->window);
		set_path(stubs[i]);
	}
	for (attempt = 0; attempt < ARM_ATTEMPTS; attempt++) {
		if (attempt)
			xk_window_wait(attempt - 1);
		xk_batch_look_before(&batch);
		xk_probes_lock();
		xk_poke_stopped(batch.pokes, choose_to_arm, &batch);
		xk_probes_unlock();
		if (!may_wait(&batch))
			break;
	}
	xk_outside_free(batch.outside);
	kvfree(batch.pokes);
	for (i = 0; i < nr; i++) {
		if (stubs[i]->armed)
			sites[i]->phase = XK_PHASE_ARMED;
		else
			sites[i]->why_not = stubs[i]->why ?: "arming failed";
	}
	return refuse_unarmed(&batch, error);
}

/* The site may be unprepared; it is not armed. */
static void detour_destroy(struct xk_live_site *site)
{
	struct xk_stub *stub = xk_detour_stub(site);

	if (!stub)
		return;
	xk_guards_destroy(stub->guards);
	xk_stub_put(stub);
	xk_detour_set_stub(site, NULL);
}

static enum xk_armed_state detour_state(const struct xk_live_site *site)
{
	const struct xk_stub *stub = xk_detour_stub(site);
	u8 running[XK_MAX_WINDOW];
	struct xk_poke jump;

	if (!stub)
		return XK_STATE_DISARMED;
	xk_jump_of(stub, &jump);
	if (copy_from_kernel_nofault(running, (void *)jump.address, jump.len))
		return XK_STATE_UNKNOWN;
	/* A breakpoint of someone else on our jump still leads to it. */
	if (!memcmp(running + 1, jump.bytes + 1, jump.len - 1))
		return XK_STATE_JUMP;
	return XK_STATE_UNKNOWN;
}

static u32 detour_describe(const struct xk_live_site *site, struct xk_site_info *info)
{
	const struct xk_stub *stub = xk_detour_stub(site);

	if (!stub)
		return 0;
	if (stub->has_native && !site->tune->values->policy)
		return XK_SITE_DETOUR | XK_SITE_UNCOUNTED;
	return XK_SITE_DETOUR;
}

static void detour_extent(const struct xk_live_site *site, unsigned long *start,
			  unsigned long *end)
{
	const struct xk_stub *stub = xk_detour_stub(site);

	if (!stub)
		return;
	*start = stub->window.address;
	*end = stub->window.address + stub->window.len;
}

static void detour_undo(const struct xk_live_site *site, u8 *view, unsigned long start, u32 len)
{
	const struct xk_stub *stub = xk_detour_stub(site);
	unsigned int i;

	for (i = 0; stub && i < stub->window.len; i++)
		if (stub->window.address + i - start < len)
			view[stub->window.address + i - start] = stub->window.bytes[i];
}

const struct xk_backend xk_backend_detour = {
	.name = "detour",
	.traits = XK_BACKEND_TEXT | XK_BACKEND_PREEMPTIBLE,
	.flag = XK_LOAD_DETOUR,
	.only = XK_LOAD_DETOUR_ONLY,
	.exit = xk_detours_exit,
	.prepare = xk_detour_prepare,
	.arm = detour_arm,
	.disarm = xk_detours_retire,
	.destroy = detour_destroy,
	.state = detour_state,
	.describe = detour_describe,
	.extent = detour_extent,
	.undo = detour_undo,
	.needs_stop = xk_detours_need_stop,
	.change_text = xk_detours_change_text,
	.changed = xk_detours_changed,
	.free_change = xk_detours_free_change,
	.settle = xk_detours_settle,
	.module_going = xk_detours_module_going,
	.reclaim = xk_detours_reclaim,
	.flush = xk_guards_flush,
};
