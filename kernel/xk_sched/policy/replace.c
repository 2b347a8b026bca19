// SPDX-License-Identifier: GPL-2.0-only
/*
 * A policy takes over the threads of another, which stay in sched_ext's class. All CPUs are stopped
 * meanwhile: callbacks run with interrupts off, so none is at work, and none sees a thread between
 * two policies. One CPU hands the threads over. Another watches it, as all timers are silent, so
 * that an event which does not return is left.
 */
#include <linux/atomic.h>
#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/list.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "base/error.h"
#include "event/call.h"
#include "event/record.h"
#include "event/watch.h"
#include "ext/kernel.h"
#include "model/thread.h"
#include "policy/cpus.h"
#include "policy/list.h"
#include "policy/replace.h"

/* What a CPU waits before it looks again at the one that hands threads over. */
#define WATCH_US 1000
#define POLL_US 10

struct swap {
	struct xk_sched_policy *old;
	struct xk_sched_policy *new;
	u32 nr_moved;
	/* While all CPUs are stopped. */
	atomic_t nr_stopped;
	int mover;		/* the CPU that hands threads over; -1: none has begun */
	bool is_over;
};

/* Those outside of the class, too: they join when they come. */
static bool choose(struct xk_thread *thread, void *data)
{
	const struct swap *swap = data;

	if (thread->choice == swap->old)
		thread->choice = swap->new;
	return false;
}

/* All CPUs are stopped. If the new policy is ejected, the rest stays where it is. */
static int move_threads(struct swap *swap)
{
	struct xk_thread *thread, *next;

	if (!READ_ONCE(swap->old->live) || !READ_ONCE(swap->new->live))
		return -ENODEV;
	list_for_each_entry_safe(thread, next, &swap->old->threads, of_policy) {
		xk_policy_move(thread, swap->new);
		swap->nr_moved++;
		if (!xk_call_adopt(thread, swap->old))
			return -ENODEV;
	}
	xk_threads_visit(choose, swap);
	return 0;
}

static void watch(struct swap *swap)
{
	unsigned int waited = 0;
	int mover;

	for (; !READ_ONCE(swap->is_over); waited += POLL_US) {
		mover = READ_ONCE(swap->mover);
		if (mover >= 0 && waited % WATCH_US == 0)
			xk_watch_look_at(mover);
		udelay(POLL_US);
	}
}

/* On each CPU, with interrupts off; none goes on before all have returned. */
static int stopped(void *data)
{
	struct swap *swap = data;
	int ret = 0;

	switch (atomic_inc_return(&swap->nr_stopped)) {
	case 1:
		WRITE_ONCE(swap->mover, smp_processor_id());
		ret = move_threads(swap);
		WRITE_ONCE(swap->is_over, true);
		break;
	case 2:
		watch(swap);
		break;
	default:
		break;
	}
	return ret;
}

static int refuse_ejected(const struct xk_sched_policy *policy, struct xk_error *error)
{
	return xk_refuse(error, -ENODEV,
			 "policy %s was ejected ('xk sched status' says why): remove its module and load it again",
			 policy->name);
}

static struct xk_sched_policy *find(const char *name, struct xk_error *error)
{
	struct xk_sched_policy *policy = NULL;

	if (strnlen(name, XK_SCHED_NAME_LEN) < XK_SCHED_NAME_LEN)
		policy = xk_policy_find(name);
	if (!policy)
		xk_refuse(error, -ENOENT,
			  "no policy is called %.31s: load its module; 'xk sched list' shows those that are loaded",
			  name);
	return policy;
}

static int refuse(const struct swap *swap, struct xk_error *error)
{
	if (swap->old == swap->new)
		return xk_refuse(error, -EINVAL, "policy %s cannot replace itself",
				 swap->old->name);
	if (!READ_ONCE(swap->old->live))
		return refuse_ejected(swap->old, error);
	if (!READ_ONCE(swap->new->live))
		return refuse_ejected(swap->new, error);
	if (!swap->new->events->take_over)
		return xk_refuse(error, -EOPNOTSUPP,
				 "policy %s cannot take over threads: it has no event take_over",
				 swap->new->name);
	if (READ_ONCE(xk_recorded) == swap->old || READ_ONCE(xk_recorded) == swap->new)
		return xk_refuse(error, -EBUSY, "one of the policies is being recorded");
	return 0;
}

/* With cpus_read_lock() and the mutex. */
static int replace(struct swap *swap, struct xk_error *error)
{
	int ret = refuse(swap, error);

	if (ret)
		return ret;
	ret = swap->new->events->take_over(swap->new, swap->old);
	if (ret)
		return xk_refuse(error, ret > 0 ? -EINVAL : ret,
				 "policy %s does not take over from %s (%pe)", swap->new->name,
				 swap->old->name, ERR_PTR(ret));
	ret = xk_ext_stop(stopped, swap);
	/* The new policy may have other CPUs. */
	xk_cpus_settle(swap->new);
	if (ret)
		return xk_refuse(error, ret,
				 "a policy was ejected when %u threads had moved ('xk sched status' says why)",
				 swap->nr_moved);
	return 0;
}

int xk_policy_replace(struct xk_sched_replacement *request, struct xk_error *error)
{
	struct swap swap = { .mover = -1 };
	int ret = -ENOENT;

	/* In this order: core_entry and core_exit. */
	cpus_read_lock();
	mutex_lock(&xk_policies_lock);
	swap.old = find(request->old, error);
	swap.new = swap.old ? find(request->new, error) : NULL;
	if (swap.new)
		ret = replace(&swap, error);
	mutex_unlock(&xk_policies_lock);
	cpus_read_unlock();
	request->nr_threads = swap.nr_moved;
	return ret;
}
