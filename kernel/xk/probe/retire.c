// SPDX-License-Identifier: GPL-2.0-only
/*
 * Removal of the jumps of probes. The original bytes are restored in a stop, unless someone else
 * has a probe on the jump. Then the jump stays, and its code runs nothing but the original
 * instructions.
 *
 * A thread may be switched out in a slot, or in enter.S before the handler. So slots and points are
 * freed after a grace period of RCU-tasks, in which every thread was switched out of its own accord
 * or left the kernel. It does not cover idle threads; the stop does, because they cannot be
 * preempted. Until then the claim stays, so no other window is written over the instructions that
 * such a thread returns to.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "backend/guard.h"
#include "base/lock.h"
#include "probe/jump.h"
#include "probe/shield.h"
#include "probe/relay.h"
#include "text/internal.h"
#include "text/poke.h"

/* Interval of attempts to remove jumps that someone else has a probe on. */
#define INTERVAL (HZ / 2)
#define EXIT_INTERVAL_MS 10

/*
 * Protected by xk_lock. Jumps whose text is still changed; jumps and code that threads may be in.
 */
static LIST_HEAD(stuck);
static LIST_HEAD(left_jumps);
static LIST_HEAD(left_code);
/* Things that are being freed, without xk_lock. */
static bool freeing;

static void free_retired(struct work_struct *work);
static DECLARE_DELAYED_WORK(retired_work, free_retired);

struct batch {
	unsigned int nr;
	struct xk_jump *jumps[XK_JUMPS_PER_STOP];
	struct xk_pokes *pokes;
};

/* In a stop. */
static bool choose(void *data)
{
	struct batch *batch = data;
	unsigned int i;

	batch->pokes->nr = 0;
	for (i = 0; i < batch->nr; i++) {
		struct xk_jump *jump = batch->jumps[i];
		struct xk_poke *poke = &batch->pokes->at[batch->pokes->nr];

		if (!xk_jump_is_intact(jump))
			continue;
		poke->address = jump->window.address;
		/* An NMI that comes meanwhile runs the original instructions in the slot. */
		poke->meanwhile = jump->code->slots[0] + XK_SLOT_CODE;
		poke->len = jump->window.len;
		memcpy(poke->bytes, jump->window.bytes, poke->len);
		batch->pokes->nr++;
		jump->claim.written = false;
	}
	return batch->pokes->nr;
}

static void remove_batch(struct batch *batch)
{
	unsigned int i;

	xk_probes_lock();
	xk_poke_stopped(batch->pokes, choose, batch);
	xk_probes_unlock();
	for (i = 0; i < batch->nr; i++)
		list_add_tail(&batch->jumps[i]->list,
			      batch->jumps[i]->claim.written ? &stuck : &left_jumps);
	batch->nr = 0;
}

/* Without memory, everything stays stuck until the next attempt. */
unsigned int xk_jumps_retire(struct list_head *jumps)
{
	struct batch *batch = kvzalloc(sizeof(*batch), GFP_KERNEL);
	struct xk_jump *jump, *next;
	unsigned int stops = 0;

	if (batch)
		batch->pokes = xk_pokes_create(XK_JUMPS_PER_STOP);
	list_for_each_entry_safe(jump, next, jumps, list) {
		list_del_init(&jump->list);
		jump->retired = true;
		if (!batch || !batch->pokes) {
			list_add_tail(&jump->list, &stuck);
			continue;
		}
		batch->jumps[batch->nr++] = jump;
		if (batch->nr < XK_JUMPS_PER_STOP)
			continue;
		remove_batch(batch);
		stops++;
	}
	if (batch && batch->nr) {
		remove_batch(batch);
		stops++;
	}
	if (batch)
		kvfree(batch->pokes);
	kvfree(batch);
	xk_retired_soon();
	return stops;
}

void xk_retired_soon(void)
{
	mod_delayed_work(xk_workqueue, &retired_work, 0);
}

void xk_jump_code_retire(struct xk_jump_code *code)
{
	if (!code)
		return;
	list_add_tail(&code->list, &left_code);
	xk_retired_soon();
}

static void free_jump(struct xk_jump *jump)
{
	unsigned int i;

	for (i = 0; i < jump->window.nr; i++)
		xk_point_free(jump->points[i]);
	xk_jump_code_free(jump->code);
	xk_jump_drop(jump);
}

/* Tries again to remove those that someone else had a probe on. */
static void retry_stuck(void)
{
	LIST_HEAD(again);
	struct xk_jump *jump, *next;

	preempt_disable();
	list_for_each_entry_safe(jump, next, &stuck, list)
		if (xk_jump_is_intact(jump))
			list_move_tail(&jump->list, &again);
	preempt_enable();
	if (!list_empty(&again))
		xk_jumps_retire(&again);
}

static void free_lists(struct list_head *jumps, struct list_head *codes)
{
	struct xk_jump_code *code, *next_code;
	struct xk_jump *jump, *next;

	list_for_each_entry_safe(jump, next, jumps, list)
		free_jump(jump);
	list_for_each_entry_safe(code, next_code, codes, list) {
		list_del(&code->list);
		xk_jump_code_free(code);
	}
	xk_guards_flush();
}

/* Returns whether there was anything to free. */
static bool free_some(void)
{
	LIST_HEAD(jumps);
	LIST_HEAD(codes);

	mutex_lock(&xk_lock);
	retry_stuck();
	list_splice_init(&left_jumps, &jumps);
	list_splice_init(&left_code, &codes);
	freeing = !list_empty(&jumps) || !list_empty(&codes);
	mutex_unlock(&xk_lock);
	if (!freeing)
		return false;
	synchronize_rcu_tasks();
	/* For handlers: a kernel without preemption has no RCU-tasks. */
	synchronize_rcu();
	mutex_lock(&xk_lock);
	free_lists(&jumps, &codes);
	xk_relay_retire_hosts();
	freeing = false;
	mutex_unlock(&xk_lock);
	return true;
}

static void free_retired(struct work_struct *work)
{
	bool again;

	/* Hosts follow their short jumps. */
	while (free_some())
		;
	mutex_lock(&xk_lock);
	again = !xk_shields_remove() || !list_empty(&stuck);
	mutex_unlock(&xk_lock);
	if (again)
		queue_delayed_work(xk_workqueue, &retired_work, INTERVAL);
}

void xk_retired_flush(void)
{
	flush_delayed_work(&retired_work);
}

/* Jumps that someone else had a probe on. Returns whether there were any. */
static bool forget_stuck(const struct module *module)
{
	struct xk_jump *jump, *next;
	bool any = false;

	list_for_each_entry_safe(jump, next, &stuck, list) {
		if (!within_module(jump->window.address, module))
			continue;
		jump->claim.written = false;
		list_move_tail(&jump->list, &left_jumps);
		any = true;
	}
	return any;
}

void xk_retired_forget(const struct module *module)
{
	bool any = true;

	/* Hosts follow their short jumps, shields all of them. */
	while (any) {
		xk_retired_soon();
		xk_retired_flush();
		mutex_lock(&xk_lock);
		any = forget_stuck(module);
		if (!any)
			xk_shields_forget(module);
		mutex_unlock(&xk_lock);
	}
}

void xk_retired_exit(void)
{
	bool left = true;

	while (left) {
		flush_delayed_work(&retired_work);
		mutex_lock(&xk_lock);
		left = !list_empty(&stuck) || !list_empty(&left_jumps) ||
		       !list_empty(&left_code) || freeing || !xk_shields_remove();
		mutex_unlock(&xk_lock);
		if (left)
			msleep(EXIT_INTERVAL_MS);
	}
	cancel_delayed_work_sync(&retired_work);
}
