// SPDX-License-Identifier: GPL-2.0-only
/*
 * Leases: a tune with a time limit is unloaded when that ends, even if no process is left. One
 * timer serves all tunes, on a clock that includes time in suspend.
 */
#include <linux/hrtimer.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>

#include "base/compat.h"
#include "core/lease.h"
#include "core/restore.h"

/* Delay until the next attempt to unload a tune for which there was no memory. */
#define RETRY_NS (100 * NSEC_PER_MSEC)

static struct hrtimer timer;
static void (*on_expiry)(struct xk_tune *tune);

/* Under xk_lock. */
static void restart(void)
{
	struct xk_tune *tune;
	u64 first = 0;

	list_for_each_entry(tune, &xk_tunes, list)
		if (tune->lease_end && (!first || tune->lease_end < first))
			first = tune->lease_end;
	if (first)
		hrtimer_start(&timer, ns_to_ktime(first), HRTIMER_MODE_ABS);
}

static void expire(struct work_struct *unused)
{
	struct xk_tune *tune, *next;
	u64 now = ktime_get_boottime_ns();

	mutex_lock(&xk_lock);
	list_for_each_entry_safe(tune, next, &xk_tunes, list) {
		if (!tune->lease_end || tune->lease_end > now)
			continue;
		if (!tune->doomed)
			pr_info("xk: %s: its lease has expired\n", tune->name);
		tune->lease_end = 0;
		on_expiry(tune);
	}
	restart();
	xk_unlock_restored();
}

static DECLARE_WORK(work, expire);

static enum hrtimer_restart on_timer(struct hrtimer *unused)
{
	queue_work(xk_workqueue, &work);
	return HRTIMER_NORESTART;
}

int xk_lease_set(struct file *caller, u32 id, u64 ns, struct xk_error *error)
{
	u64 now = ktime_get_boottime_ns();
	struct xk_tune *tune;
	int ret = 0;

	if (ns > KTIME_MAX - now)
		return -EINVAL;
	mutex_lock(&xk_lock);
	tune = xk_tune_find_owned(caller, id, error);
	if (IS_ERR(tune)) {
		ret = PTR_ERR(tune);
	} else if (tune->doomed) {
		ret = xk_refuse(error, -EBUSY, "%s: is being unloaded", tune->name);
	} else {
		tune->lease_end = ns ? now + ns : 0;
		restart();
	}
	mutex_unlock(&xk_lock);
	return ret;
}

void xk_lease_retry(struct xk_tune *tune)
{
	lockdep_assert_held(&xk_lock);
	tune->lease_end = ktime_get_boottime_ns() + RETRY_NS;
	restart();
}

void xk_lease_init(void (*expired)(struct xk_tune *tune))
{
	on_expiry = expired;
	hrtimer_setup(&timer, on_timer, CLOCK_BOOTTIME, HRTIMER_MODE_ABS);
}

void xk_lease_exit(void)
{
	hrtimer_cancel(&timer);
	cancel_work_sync(&work);
}
