// SPDX-License-Identifier: GPL-2.0-only
/*
 * The budget of stops. A caller that waits, for threads to leave a scope or for probes of others to
 * be removed, first looks at the threads, and stops the machine only if that may help. The first
 * stops happen without delay, because most waits are short. After that, the machine runs a thousand
 * times as long as the last stop took before the next stop.
 */
#include <linux/lockdep.h>
#include <linux/minmax.h>
#include <linux/timekeeping.h>

#include "base/lock.h"
#include "text/stop_budget.h"
#include "uapi/xk.h"

#define FREE_STOPS 8
#define SHARE 1000

static struct {
	u64 since;		/* when xk.ko was loaded */
	u64 nr;
	u64 total;
	u64 longest;
	u64 stacks;		/* stacks that were read in stops */
} stops;

/* Called by the CPU that acts in a stop. */
void xk_stop_budget_read_stack(void)
{
	stops.stacks++;
}

void xk_stop_budget_add(struct xk_stop_budget *budget, u64 ns)
{
	lockdep_assert_held(&xk_lock);
	stops.nr++;
	stops.total += ns;
	stops.longest = max(stops.longest, ns);
	if (!budget)
		return;
	budget->spent++;
	budget->next = ktime_get_ns() + SHARE * ns;
}

bool xk_stop_budget_affords(const struct xk_stop_budget *budget)
{
	lockdep_assert_held(&xk_lock);
	return budget->spent < FREE_STOPS || ktime_get_ns() >= budget->next;
}

void xk_stop_budget_describe(struct xk_stop_info *info)
{
	lockdep_assert_held(&xk_lock);
	info->nr = stops.nr;
	info->total_ns = stops.total;
	info->longest_ns = stops.longest;
	info->stacks = stops.stacks;
	info->since_ns = ktime_get_ns() - stops.since;
}

void xk_stop_budget_init(void)
{
	stops.since = ktime_get_ns();
}
