// SPDX-License-Identifier: GPL-2.0-only
/*
 * The detour backend: the instructions at a site become one jump to a stub, which
 * runs the update and the same instructions. No trap, and nothing that can be
 * missed. window.c says where, stubs.c what, poke.c how text changes.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "answers.h"
#include "backend.h"
#include "detour.h"
#include "guard.h"
#include "handler.h"
#include "internal.h"
#include "poke.h"
#include "scan.h"
#include "stubs.h"
#include "xk.h"

/* A thread that was preempted in the window leaves it when it runs again. */
#define ARM_ATTEMPTS 20
#define ARM_INTERVAL_US 1000

static const char IN_WINDOW[] = "a thread stays in the middle of these instructions";

/* How often it is tried to free stubs that threads, or other probes, were in. */
#define BURY_INTERVAL (HZ / 2)
#define EXIT_INTERVAL_MS 10

static void bury_all(struct work_struct *work);
static DECLARE_DELAYED_WORK(burial, bury_all);

static int detour_prepare(struct xk_live_site *site, struct xk_error *error)
{
	return 0;
}

/* What the jump in the window is. */
static void write_jump(const struct xk_stub *stub, struct xk_poke *poke)
{
	poke->address = stub->window.address;
	poke->meanwhile = xk_stub_address(stub);
	poke->len = stub->window.len;
	xk_write_jump(poke->bytes, poke->len, poke->address, poke->meanwhile);
}

static void write_original(const struct xk_stub *stub, struct xk_poke *poke)
{
	write_jump(stub, poke);
	memcpy(poke->bytes, stub->window.bytes, poke->len);
}

static bool bytes_are(unsigned long address, const u8 *bytes, unsigned int len)
{
	u8 running[XK_MAX_WINDOW];

	return !copy_from_kernel_nofault(running, (void *)address, len) &&
	       !memcmp(running, bytes, len);
}

/* Somebody has a probe at one of the instructions of the window. */
static bool is_probed(const struct xk_window *window)
{
	unsigned int i;

	for (i = 0; i < window->len; i++)
		if (xk_is_probed(window->address + i))
			return true;
	return false;
}

/* Stubs whose jumps are written, or taken away, in one stop. */
struct batch {
	unsigned int nr;
	struct xk_stub *const *stubs;
	struct xk_pokes *pokes;
};

/* A thread stands at `address`: which windows is it in the middle of, which stubs in? */
static void note_thread(unsigned long address, void *data)
{
	const struct batch *batch = data;
	unsigned int i;

	for (i = 0; i < batch->nr; i++) {
		struct xk_stub *stub = batch->stubs[i];
		const struct xk_window *window = &stub->window;

		stub->entered |= address > window->address &&
				 address < window->address + window->len;
		stub->empty &= !xk_in_stub(stub, address);
	}
}

/* Where a stack cannot be read, its thread may be anywhere. In a stop. */
static void look_at_threads(const struct batch *batch)
{
	unsigned int i;
	bool readable;

	for (i = 0; i < batch->nr; i++) {
		batch->stubs[i]->entered = false;
		batch->stubs[i]->empty = true;
	}
	readable = xk_scan_addresses(note_thread, (void *)batch);
	for (i = 0; i < batch->nr; i++) {
		batch->stubs[i]->entered |= !readable;
		batch->stubs[i]->empty &= readable;
	}
}

/* In a stop. */
static const char *why_not_armed(const struct xk_stub *stub)
{
	const struct xk_window *window = &stub->window;

	if (!bytes_are(window->address, window->bytes, window->len) || is_probed(window))
		return "another probe came here";
	if (xk_jump_may_come(stub))
		return "another probe came just before here";
	if (stub->entered)
		return IN_WINDOW;
	return NULL;
}

/* Those that lean on what will be no jump cannot be one, and so on. */
static void drop_unsupported(const struct batch *batch)
{
	unsigned int i;
	bool again;

	do {
		again = false;
		for (i = 0; i < batch->nr; i++) {
			struct xk_stub *stub = batch->stubs[i];

			if (!stub->chosen || xk_is_supported(stub))
				continue;
			stub->chosen = false;
			stub->why = "another window beside it, which it needs, is no detour";
			again = true;
		}
	} while (again);
}

/* In a stop. Those that may be; false if none may. */
static bool choose_to_arm(void *data)
{
	struct batch *batch = data;
	unsigned int i;

	look_at_threads(batch);
	batch->pokes->nr = 0;
	for (i = 0; i < batch->nr; i++) {
		struct xk_stub *stub = batch->stubs[i];

		stub->why = stub->armed ? NULL : why_not_armed(stub);
		stub->chosen = !stub->armed && !stub->why;
	}
	drop_unsupported(batch);
	for (i = 0; i < batch->nr; i++) {
		struct xk_stub *stub = batch->stubs[i];

		if (!stub->chosen)
			continue;
		write_jump(stub, &batch->pokes->at[batch->pokes->nr++]);
		stub->armed = true;
		stub->chosen = false;
	}
	return batch->pokes->nr;
}

/* Before a jump leads to it. While a transition is under way, every execution asks. */
static void set_gate(struct xk_stub *stub)
{
	const struct xk_tune *tune = stub->site->tune;
	enum xk_gate wanted = tune->turn ? XK_GATE_ASK : xk_gate_of(stub, tune->values);
	struct xk_poke gate;

	xk_stub_take(stub, tune->values);
	if (stub->state == wanted)
		return;
	xk_stub_write_gate(stub, wanted, &gate);
	xk_text_lock();
	xk_text_write(gate.address, gate.bytes, gate.len);
	xk_text_unlock();
	stub->state = wanted;
}

static bool wait_in_window(const struct batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->nr; i++)
		if (!batch->stubs[i]->armed && batch->stubs[i]->why == IN_WINDOW)
			return true;
	return false;
}

static int refuse_unarmed(const struct batch *batch, struct xk_error *error)
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

/* In one stop, unless threads are in the middle of windows. */
static int detour_arm(struct xk_live_site **sites, unsigned int nr, struct xk_error *error)
{
	struct xk_stub *stubs[XK_BATCH];
	struct batch batch = { .nr = nr, .stubs = stubs };
	unsigned int i, attempt;

	batch.pokes = xk_pokes_create(nr);
	if (!batch.pokes)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		stubs[i] = sites[i]->stub;
		xk_guards_complete(stubs[i]);
		set_gate(stubs[i]);
	}
	for (attempt = 0; attempt < ARM_ATTEMPTS; attempt++) {
		if (attempt)
			usleep_range(ARM_INTERVAL_US, 2 * ARM_INTERVAL_US);
		xk_poke_stopped(batch.pokes, choose_to_arm, &batch);
		if (!wait_in_window(&batch))
			break;
	}
	kvfree(batch.pokes);
	for (i = 0; i < nr; i++) {
		if (stubs[i]->armed)
			sites[i]->phase = XK_PHASE_ARMED;
		else
			sites[i]->no_detour = stubs[i]->why;
	}
	return refuse_unarmed(&batch, error);
}

static bool may_disarm(const struct xk_stub *stub)
{
	struct xk_poke jump;

	write_jump(stub, &jump);
	return bytes_are(jump.address, jump.bytes, jump.len) && !is_probed(&stub->window);
}

/* What others lean on stays as long as they do, and so on. */
static void keep_supports(const struct batch *batch)
{
	unsigned int i;
	bool again;

	do {
		again = false;
		for (i = 0; i < batch->nr; i++) {
			struct xk_stub *stub = batch->stubs[i];

			if (!stub->chosen || !xk_is_support(stub))
				continue;
			stub->chosen = false;
			again = true;
		}
	} while (again);
}

/*
 * In a stop. The original bytes come back where nobody else has a probe on our
 * jump; elsewhere the stub, which stays, runs the original instructions only. What
 * nobody is in can be reused.
 */
static bool choose_to_disarm(void *data)
{
	struct batch *batch = data;
	unsigned int i;

	look_at_threads(batch);
	batch->pokes->nr = 0;
	for (i = 0; i < batch->nr; i++)
		batch->stubs[i]->chosen = batch->stubs[i]->armed && may_disarm(batch->stubs[i]);
	keep_supports(batch);
	for (i = 0; i < batch->nr; i++) {
		struct xk_stub *stub = batch->stubs[i];
		struct xk_poke *poke = &batch->pokes->at[batch->pokes->nr];

		if (stub->chosen) {
			write_original(stub, poke);
			stub->armed = false;
			stub->chosen = false;
		} else if (stub->armed && stub->state != XK_GATE_SKIP) {
			xk_stub_write_gate(stub, XK_GATE_SKIP, poke);
			stub->state = XK_GATE_SKIP;
		} else {
			continue;
		}
		batch->pokes->nr++;
	}
	return batch->pokes->nr;
}

/* True: it is nobody's now. */
static bool bury(struct xk_stub *stub)
{
	if (stub->armed || !stub->empty)
		return false;
	xk_guards_destroy(stub->guards);
	xk_stub_put(stub);
	return true;
}

/* One stop for all of them. Without memory, they go on asking, and find no site. */
static void retire(struct xk_stub *const *stubs, unsigned int nr)
{
	struct batch batch = { .nr = nr, .stubs = stubs, .pokes = xk_pokes_create(nr) };
	unsigned int i;
	bool left = false;

	for (i = 0; i < nr; i++)
		stubs[i]->empty = false;
	if (batch.pokes)
		xk_poke_stopped(batch.pokes, choose_to_disarm, &batch);
	kvfree(batch.pokes);
	for (i = 0; i < nr; i++)
		if (!bury(stubs[i]))
			left = true;
	if (left)
		queue_delayed_work(xk_workqueue, &burial, BURY_INTERVAL);
}

static void bury_all(struct work_struct *work)
{
	struct xk_stub *stubs[XK_BATCH];
	struct xk_stub *stub;
	unsigned int nr = 0;

	mutex_lock(&xk_lock);
	for (stub = xk_stub_next(NULL); stub && nr < XK_BATCH; stub = xk_stub_next(stub))
		if (stub->dying)
			stubs[nr++] = stub;
	if (nr)
		retire(stubs, nr);
	xk_guards_flush();
	/* There may be more. */
	if (nr == XK_BATCH)
		queue_delayed_work(xk_workqueue, &burial, 0);
	mutex_unlock(&xk_lock);
}

static void warn_of_probe(const struct xk_stub *stub)
{
	if (stub->dying && stub->armed)
		pr_warn("xk: %pS: another probe stands on the jump here; the original instructions run from a stub until it goes\n",
			(void *)stub->window.address);
}

static void detour_disarm(struct xk_live_site **sites, unsigned int nr)
{
	struct xk_stub *stubs[XK_BATCH];
	unsigned int i;

	for (i = 0; i < nr; i++) {
		stubs[i] = sites[i]->stub;
		sites[i]->stub = NULL;
		/* After the next stop nobody uses the site. */
		WRITE_ONCE(stubs[i]->site, NULL);
		WRITE_ONCE(stubs[i]->decided, NULL);
		stubs[i]->dying = true;
	}
	retire(stubs, nr);
	for (i = 0; i < nr; i++)
		warn_of_probe(stubs[i]);
}

/* Prepared, perhaps, and not armed. */
static void detour_destroy(struct xk_live_site *site)
{
	if (!site->stub)
		return;
	xk_guards_destroy(site->stub->guards);
	xk_stub_put(site->stub);
	site->stub = NULL;
}

static enum xk_armed_state detour_state(const struct xk_live_site *site)
{
	struct xk_poke jump;
	u8 running[XK_MAX_WINDOW];

	if (!site->stub)
		return XK_STATE_DISARMED;
	write_jump(site->stub, &jump);
	if (copy_from_kernel_nofault(running, (void *)jump.address, jump.len))
		return XK_STATE_UNKNOWN;
	/* Somebody's breakpoint on our jump leads to it all the same. */
	if (!memcmp(running + 1, jump.bytes + 1, jump.len - 1))
		return XK_STATE_JUMP;
	return XK_STATE_UNKNOWN;
}

static u64 detour_missed(const struct xk_live_site *site)
{
	return site->missed;
}

const struct xk_backend xk_backend_detour = {
	.name = "detour",
	.cost = 4,
	.can_run_after = true,
	.can_run_instead = true,
	.prepare = detour_prepare,
	.arm = detour_arm,
	.disarm = detour_disarm,
	.destroy = detour_destroy,
	.state = detour_state,
	.missed = detour_missed,
};

int xk_detour_init(void)
{
	xk_internal_init();
	return xk_poke_init();
}

static bool stubs_are_left(void)
{
	struct xk_stub *stub;
	bool left = false;

	mutex_lock(&xk_lock);
	for (stub = xk_stub_next(NULL); stub; stub = xk_stub_next(stub))
		left |= stub->site || stub->dying;
	mutex_unlock(&xk_lock);
	return left;
}

/* All tunes are gone. */
void xk_detour_exit(void)
{
	while (stubs_are_left())
		msleep(EXIT_INTERVAL_MS);
	cancel_delayed_work_sync(&burial);
	xk_answers_exit();
	xk_poke_exit();
}

void xk_detour_module_going(const struct module *module)
{
	struct xk_stub *stub;

	for (stub = xk_stub_next(NULL); stub; stub = xk_stub_next(stub))
		if (stub->dying && within_module(stub->window.address, module))
			stub->armed = false;
}
