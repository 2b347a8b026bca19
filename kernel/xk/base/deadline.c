// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deadlines: one timer serves all of them, on a clock that includes time in suspend. The work that
 * it queues takes xk_lock.
 */
#include <linux/hrtimer.h>
#include <linux/lockdep.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>

#include "base/compat.h"
#include "base/deadline.h"
#include "base/lock.h"

static LIST_HEAD(deadlines);
static struct hrtimer timer;
static void (*unlock_after)(void);

static void restart(void)
{
	const struct xk_deadline *deadline;
	u64 first = 0;

	list_for_each_entry(deadline, &deadlines, list)
		if (!first || deadline->end < first)
			first = deadline->end;
	if (first)
		hrtimer_start(&timer, ns_to_ktime(first), HRTIMER_MODE_ABS);
}

static struct xk_deadline *find_passed(u64 now)
{
	struct xk_deadline *deadline;

	list_for_each_entry(deadline, &deadlines, list)
		if (deadline->end <= now)
			return deadline;
	return NULL;
}

static void expire(struct work_struct *unused)
{
	struct xk_deadline *deadline;
	u64 now = ktime_get_boottime_ns();

	mutex_lock(&xk_lock);
	/* One that is set anew in passed() is later than `now`. */
	while ((deadline = find_passed(now))) {
		xk_deadline_set(deadline, 0);
		deadline->passed(deadline);
	}
	restart();
	unlock_after();
}

static DECLARE_WORK(work, expire);

static enum hrtimer_restart on_timer(struct hrtimer *unused)
{
	queue_work(xk_workqueue, &work);
	return HRTIMER_NORESTART;
}

void xk_deadline_init(struct xk_deadline *deadline, void (*passed)(struct xk_deadline *deadline))
{
	INIT_LIST_HEAD(&deadline->list);
	deadline->end = 0;
	deadline->passed = passed;
}

int xk_deadline_set(struct xk_deadline *deadline, u64 ns)
{
	u64 now = ktime_get_boottime_ns();

	lockdep_assert_held(&xk_lock);
	if (ns > KTIME_MAX - now)
		return -EINVAL;
	list_del_init(&deadline->list);
	deadline->end = ns ? now + ns : 0;
	if (!ns)
		return 0;
	list_add_tail(&deadline->list, &deadlines);
	restart();
	return 0;
}

u64 xk_deadline_left(const struct xk_deadline *deadline)
{
	u64 now = ktime_get_boottime_ns();

	lockdep_assert_held(&xk_lock);
	if (!deadline->end)
		return 0;
	return deadline->end > now ? deadline->end - now : 1;
}

void xk_deadlines_init(void (*unlock)(void))
{
	unlock_after = unlock;
	hrtimer_setup(&timer, on_timer, CLOCK_BOOTTIME, HRTIMER_MODE_ABS);
}

void xk_deadlines_exit(void)
{
	hrtimer_cancel(&timer);
	cancel_work_sync(&work);
}
