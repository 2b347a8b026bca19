// SPDX-License-Identifier: GPL-2.0-only
/* What is counted of policies while somebody looks. */
#include <linux/bitops.h>
#include <linux/mutex.h>
#include <linux/timekeeping.h>

#include "model/count.h"

DEFINE_STATIC_KEY_FALSE(xk_counting);
static unsigned int users;
static u64 since;	/* what is older was noted before nobody looked for a while */
static DEFINE_MUTEX(users_lock);

void xk_count_begin(void)
{
	mutex_lock(&users_lock);
	if (!users++) {
		WRITE_ONCE(since, ktime_get_mono_fast_ns());
		static_branch_enable(&xk_counting);
	}
	mutex_unlock(&users_lock);
}

void xk_count_end(void)
{
	mutex_lock(&users_lock);
	if (!--users)
		static_branch_disable(&xk_counting);
	mutex_unlock(&users_lock);
}

void __xk_count_ready(struct xk_thread *thread)
{
	if (thread->ready_at < READ_ONCE(since))
		thread->ready_at = ktime_get_mono_fast_ns();
}

void __xk_count_chosen(struct xk_thread *thread, struct xk_policy_core *own, int core)
{
	u64 waited;

	if (thread->ready_at >= READ_ONCE(since)) {
		waited = ktime_get_mono_fast_ns() - thread->ready_at;
		own->waited_ns += waited;
		own->waits[min(fls64(waited), XK_SCHED_NR_WAITS - 1)]++;
	}
	thread->ready_at = 0;
	if (thread->chosen_for && thread->chosen_for != core + 1)
		own->nr_moves++;
	thread->chosen_for = core + 1;
}
