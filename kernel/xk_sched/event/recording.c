// SPDX-License-Identifier: GPL-2.0-only
/* The recording of a policy: memory that is filled, and the lock that gives it an order. */
#include <linux/spinlock.h>
#include <linux/string.h>

#include "event/record.h"
#include "event/recording.h"

struct xk_sched_policy *xk_recorded;
static struct xk_recording *into;
/* Of both. Taken inside of all other locks but that of reports, with interrupts off. */
static DEFINE_RAW_SPINLOCK(record_lock);

bool xk_record_lock(const struct xk_sched_policy *policy)
{
	raw_spin_lock(&record_lock);
	if (likely(xk_recorded == policy))
		return true;
	raw_spin_unlock(&record_lock);
	return false;
}

void xk_record_unlock(void)
{
	raw_spin_unlock(&record_lock);
}

/* What follows an event that is not complete would make no sense. */
static bool is_complete(const struct xk_sched_record *record)
{
	return record->kind == XK_RECORD_END || record->kind >= XK_RECORD_JOIN;
}

void xk_record_put(const struct xk_sched_record *record)
{
	if (into->missed || into->used + sizeof(*record) > into->size) {
		into->missed++;
		return;
	}
	memcpy(into->buffer + into->used, record, sizeof(*record));
	into->used += sizeof(*record);
	if (is_complete(record))
		into->complete = into->used;
}

bool xk_recording_start(struct xk_recording *recording, struct xk_sched_policy *policy)
{
	bool is_fresh;

	/* The first thread joins before or after, and is recorded if it joins after. */
	raw_spin_lock_irq(&policy->lock);
	is_fresh = !policy->nr_joined;
	if (is_fresh) {
		raw_spin_lock(&record_lock);
		into = recording;
		WRITE_ONCE(xk_recorded, policy);
		raw_spin_unlock(&record_lock);
		xk_record_cpus(policy, policy->cpus, policy->confined);
	}
	raw_spin_unlock_irq(&policy->lock);
	return is_fresh;
}

void xk_recording_stop(void)
{
	raw_spin_lock_irq(&record_lock);
	WRITE_ONCE(xk_recorded, NULL);
	raw_spin_unlock_irq(&record_lock);
}

void xk_recording_forget(const struct xk_sched_policy *policy)
{
	raw_spin_lock_irq(&record_lock);
	if (xk_recorded == policy)
		WRITE_ONCE(xk_recorded, NULL);
	raw_spin_unlock_irq(&record_lock);
}
