// SPDX-License-Identifier: GPL-2.0-only
/*
 * How held values return to the original: when their lease ends, on a clock that includes time in
 * suspend; when their descriptor is closed; or when this module is removed. One timer serves all.
 */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>

#include "base/compat.h"
#include "tunable.h"

/* Delay until the next attempt, if the setter did not accept the original value. */
#define RETRY_NS NSEC_PER_SEC

/* Setters are code of other modules and may take long. */
static struct workqueue_struct *workqueue;
static struct hrtimer timer;
static bool closed;

/* The getter determines whether the original value is restored. */
static int write_back(struct xk_live_tunable *tunable)
{
	int ret = xk_tunable_write(tunable, tunable->original), unreadable;
	s64 now;

	unreadable = xk_tunable_read(tunable, &now);
	if (unreadable)
		return unreadable;
	if (now == tunable->original)
		return 0;
	mutex_lock(&xk_tunables_lock);
	tunable->ours = now;
	mutex_unlock(&xk_tunables_lock);
	return ret ?: -EIO;
}

/* With `call`, for a tunable whose hold ends. */
static void put_back(struct xk_live_tunable *tunable)
{
	const char *module = tunable->module->name, *name = tunable->is->head.name;
	s64 now;
	int ret;

	lockdep_assert_held(&tunable->call);
	ret = xk_tunable_read(tunable, &now);
	if (!ret && now != tunable->original) {
		if (now != tunable->ours) {
			pr_info("xk: %s: %s: something else has set it to %lld, which is kept\n",
				module, name, now);
			xk_tunable_let_go(tunable);
			return;
		}
		ret = write_back(tunable);
	}
	if (!ret) {
		xk_tunable_let_go(tunable);
		return;
	}
	pr_warn_ratelimited("xk: %s: %s: cannot be restored to %lld (error %d); will be tried again\n",
			    module, name, tunable->original, -ret);
	mutex_lock(&xk_tunables_lock);
	tunable->lease_end = ktime_get_boottime_ns() + RETRY_NS;
	mutex_unlock(&xk_tunables_lock);
}

/* Returns a tunable whose lease has ended, with a reference to its module. */
static struct xk_live_tunable *next_due(u64 now)
{
	struct xk_live_tunable *tunable;

	lockdep_assert_held(&xk_tunables_lock);
	list_for_each_entry(tunable, &xk_tunables, list) {
		if (!tunable->held || !tunable->lease_end || tunable->lease_end > now)
			continue;
		if (try_module_get(tunable->module)) {
			if (tunable->owner)
				pr_info("xk: %s: %s: its lease has expired\n",
					tunable->module->name, tunable->is->head.name);
			return tunable;
		}
		/* The module is being removed, and its value with it. */
		tunable->held = false;
	}
	return NULL;
}

static void put_back_due(u64 now)
{
	struct xk_live_tunable *tunable;
	bool due;

	for (;;) {
		mutex_lock(&xk_tunables_lock);
		tunable = next_due(now);
		mutex_unlock(&xk_tunables_lock);
		if (!tunable)
			break;
		mutex_lock(&tunable->call);
		mutex_lock(&xk_tunables_lock);
		/* Its owner may have been first, and extended the lease. */
		due = tunable->held && tunable->lease_end && tunable->lease_end <= now;
		if (due)
			tunable->owner = NULL;
		mutex_unlock(&xk_tunables_lock);
		if (due)
			put_back(tunable);
		xk_tunable_leave(tunable);
	}
}

/* Starts the timer for the lease that ends first. */
void xk_tunables_start_timer(void)
{
	const struct xk_live_tunable *tunable;
	u64 first = 0;

	mutex_lock(&xk_tunables_lock);
	list_for_each_entry(tunable, &xk_tunables, list)
		if (tunable->held && tunable->lease_end &&
		    (!first || tunable->lease_end < first))
			first = tunable->lease_end;
	if (first && !closed)
		hrtimer_start(&timer, ns_to_ktime(first), HRTIMER_MODE_ABS);
	mutex_unlock(&xk_tunables_lock);
}

static void expire(struct work_struct *unused)
{
	put_back_due(ktime_get_boottime_ns());
	xk_tunables_start_timer();
}

static DECLARE_WORK(work, expire);

static enum hrtimer_restart on_timer(struct hrtimer *unused)
{
	queue_work(workqueue, &work);
	return HRTIMER_NORESTART;
}

/*
 * Marks what this owner holds, or for NULL what no one holds, to be restored. Returns whether there
 * is any.
 */
static bool end_holds(const struct file *owner)
{
	struct xk_live_tunable *tunable;
	bool any = false;

	mutex_lock(&xk_tunables_lock);
	list_for_each_entry(tunable, &xk_tunables, list) {
		if (!xk_tunable_is_owned(tunable, owner))
			continue;
		tunable->owner = NULL;
		tunable->lease_end = 1;
		any = true;
	}
	mutex_unlock(&xk_tunables_lock);
	return any;
}

/*
 * A thread of the workqueue restores the values: this thread may be exiting, and a setter that
 * waits would be interrupted.
 */
void xk_tunables_release(struct file *owner)
{
	if (!end_holds(owner))
		return;
	queue_work(workqueue, &work);
	flush_work(&work);
}

int xk_tunables_lease_init(void)
{
	hrtimer_setup(&timer, on_timer, CLOCK_BOOTTIME, HRTIMER_MODE_ABS);
	workqueue = alloc_workqueue("xk_tunable", WQ_UNBOUND, 0);
	return workqueue ? 0 : -ENOMEM;
}

/*
 * No descriptor is open. The notifiers still exist, so a module cannot be removed unnoticed while
 * its setter is called.
 */
void xk_tunables_lease_exit(void)
{
	mutex_lock(&xk_tunables_lock);
	closed = true;
	mutex_unlock(&xk_tunables_lock);
	hrtimer_cancel(&timer);
	cancel_work_sync(&work);
	/* Once more, for values whose setter did not accept the original. */
	if (end_holds(NULL))
		put_back_due(ktime_get_boottime_ns());
	destroy_workqueue(workqueue);
}
