// SPDX-License-Identifier: GPL-2.0-only
/*
 * Removal of detours. The original bytes are restored in a stop, unless someone else has a probe on
 * our jump. A stub is retired if a thread is in it or its jump must stay. A work item frees it
 * later.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "backend/detour/batch.h"
#include "backend/window.h"
#include "backend/detour/detour.h"
#include "backend/detour/stub_code.h"
#include "backend/guard.h"
#include "backend/probe_cache.h"
#include "text/internal.h"
#include "text/poke.h"
#include "text/stop_budget.h"
#include "transition/stack.h"

/* Interval of attempts to free retired stubs. */
#define RECLAIM_INTERVAL (HZ / 2)
#define EXIT_INTERVAL_MS 10

static void reclaim_all(struct work_struct *work);
static DECLARE_DELAYED_WORK(reclaim_work, reclaim_all);

static void write_original(const struct xk_stub *stub, struct xk_poke *poke)
{
	xk_jump_of(stub, poke);
	memcpy(poke->bytes, stub->window.bytes, poke->len);
}

static bool may_disarm(const struct xk_stub *stub)
{
	struct xk_poke jump;

	xk_jump_of(stub, &jump);
	return xk_text_is(jump.address, jump.bytes, jump.len) &&
	       !xk_window_is_probed(&stub->window);
}

/*
 * In a stop. Restores the original bytes, unless someone else has a probe on our jump. In that case
 * the jump and the stub stay, and the stub runs only the original instructions. A stub that no
 * thread is in can be reused.
 */
static bool choose_to_disarm(void *data)
{
	struct xk_stub_batch *batch = data;
	unsigned int i;

	xk_batch_look(batch);
	batch->pokes->nr = 0;
	for (i = 0; i < batch->nr; i++) {
		struct xk_stub *stub = batch->stubs[i];
		struct xk_poke *poke = &batch->pokes->at[batch->pokes->nr];

		if (stub->armed && may_disarm(stub)) {
			write_original(stub, poke);
			stub->armed = false;
		} else if (stub->armed && stub->path != XK_PATH_ORIGINAL) {
			xk_stub_select(stub, XK_PATH_ORIGINAL, poke);
			stub->path = XK_PATH_ORIGINAL;
		} else {
			continue;
		}
		batch->pokes->nr++;
	}
	return batch->pokes->nr;
}

/* Returns true if the stub is free now. */
static bool reclaim(struct xk_stub *stub)
{
	if (stub->armed || !stub->empty)
		return false;
	xk_guards_destroy(stub->guards);
	xk_stub_put(stub);
	return true;
}

/* Only a look in a stop shows that no thread is in a stub. */
static void expect_threads(struct xk_stub *const *stubs, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		stubs[i]->empty = false;
}

static void stop_to_disarm(struct xk_stub_batch *batch, struct xk_stop_budget *budget)
{
	xk_batch_look_before(batch);
	/* In case the machine cannot be stopped. */
	expect_threads(batch->stubs, batch->nr);
	xk_probes_lock();
	xk_poke_stopped_within(batch->pokes, choose_to_disarm, batch, budget);
	xk_probes_unlock();
	xk_outside_free(batch->outside);
}

/*
 * Disarms all of them in one stop, after which no handler uses their sites. Without memory there is
 * no stop: stubs still call the handler, which finds no site, and a grace period waits for handlers
 * that run.
 */
static void retire(struct xk_stub *const *stubs, unsigned int nr,
		   struct xk_stop_budget *budget)
{
	struct xk_stub_batch batch = { .nr = nr, .stubs = stubs, .pokes = xk_pokes_create(nr) };
	unsigned int i;
	bool left = false;

	expect_threads(stubs, nr);
	if (batch.pokes)
		stop_to_disarm(&batch, budget);
	else
		synchronize_rcu();
	kvfree(batch.pokes);
	for (i = 0; i < nr; i++)
		if (!reclaim(stubs[i]))
			left = true;
	if (left)
		queue_delayed_work(xk_workqueue, &reclaim_work, RECLAIM_INTERVAL);
}

/* The stop budget of the work item. Reset when no retired stub is left. */
static struct xk_stop_budget reclaim_budget;

static bool may_be_reclaimed(const struct xk_stub *stub)
{
	if (!stub->armed)
		return stub->empty;
	return stub->path != XK_PATH_ORIGINAL || may_disarm(stub);
}

/* Whether a stop may make progress. Only a look in a stop tells for sure. */
static bool may_reclaim(struct xk_stub *const *stubs, unsigned int nr)
{
	struct xk_stub_batch batch = { .nr = nr, .stubs = stubs };
	bool may = false;
	unsigned int i;

	if (!xk_stop_budget_affords(&reclaim_budget))
		return false;
	xk_batch_look_before(&batch);
	xk_outside_free(batch.outside);
	preempt_disable();
	for (i = 0; i < nr; i++)
		may |= may_be_reclaimed(stubs[i]);
	preempt_enable();
	return may;
}

static unsigned int collect_retired(struct xk_stub *stubs[XK_BATCH])
{
	struct xk_stub *stub;
	unsigned int nr = 0;

	for (stub = xk_stub_next(NULL); stub && nr < XK_BATCH; stub = xk_stub_next(stub))
		if (stub->retired)
			stubs[nr++] = stub;
	return nr;
}

/* A caller needs the text that retired stubs occupy, and waits. */
void xk_detours_reclaim(void)
{
	struct xk_stub *stubs[XK_BATCH];
	unsigned int nr = collect_retired(stubs);

	lockdep_assert_held(&xk_lock);
	if (nr)
		retire(stubs, nr, NULL);
}

static void reclaim_all(struct work_struct *work)
{
	struct xk_stub *stubs[XK_BATCH];
	unsigned int nr;

	mutex_lock(&xk_lock);
	nr = collect_retired(stubs);
	if (!nr)
		reclaim_budget = (struct xk_stop_budget){};
	if (nr && may_reclaim(stubs, nr)) {
		retire(stubs, nr, &reclaim_budget);
		/* More than one batch may be retired. */
		if (nr == XK_BATCH)
			queue_delayed_work(xk_workqueue, &reclaim_work, 0);
	} else if (nr) {
		queue_delayed_work(xk_workqueue, &reclaim_work, RECLAIM_INTERVAL);
	}
	xk_guards_flush();
	mutex_unlock(&xk_lock);
}

static void warn_of_probe(const struct xk_stub *stub)
{
	if (stub->retired && stub->armed)
		pr_warn("xk: %pS: another kprobe is on this jump; the original instructions run in a stub until it is removed\n",
			(void *)stub->window.address);
}

/* The values of the tune are freed, but code in the stub may still run. It uses these copies. */
static void keep_constants(struct xk_stub *stub)
{
	if (!stub->constants)
		return;
	memcpy(stub->last, stub->constants, sizeof(stub->last));
	/* The constants are complete before code can find them. */
	smp_store_release(&stub->constants, stub->last);
}

void xk_detours_retire(struct xk_live_site **sites, unsigned int nr)
{
	struct xk_stub *stubs[XK_BATCH];
	unsigned int i;

	for (i = 0; i < nr; i++) {
		stubs[i] = xk_detour_stub(sites[i]);
		xk_detour_set_stub(sites[i], NULL);
		keep_constants(stubs[i]);
		/* No one uses the site after the next stop. */
		WRITE_ONCE(stubs[i]->site, NULL);
		WRITE_ONCE(stubs[i]->decided, NULL);
		stubs[i]->retired = true;
	}
	retire(stubs, nr, NULL);
	for (i = 0; i < nr; i++)
		warn_of_probe(stubs[i]);
}

static bool stubs_are_left(void)
{
	struct xk_stub *stub;
	bool left = false;

	mutex_lock(&xk_lock);
	for (stub = xk_stub_next(NULL); stub; stub = xk_stub_next(stub))
		left |= stub->site || stub->retired;
	mutex_unlock(&xk_lock);
	return left;
}

/* All tunes are unloaded. */
void xk_detours_exit(void)
{
	while (stubs_are_left())
		msleep(EXIT_INTERVAL_MS);
	cancel_delayed_work_sync(&reclaim_work);
	xk_probe_cache_exit();
}

void xk_detours_module_going(const struct module *module)
{
	struct xk_stub *stub;

	for (stub = xk_stub_next(NULL); stub; stub = xk_stub_next(stub))
		if (stub->retired && within_module(stub->window.address, module))
			stub->armed = false;
	xk_guards_flush();
	xk_probe_cache_module_going(module);
}
