// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parameters that other modules describe: which there are, and who has set them. A value
 * that is set through a descriptor is *held*: it goes back when the descriptor is closed
 * or its lease ends, unless somebody else has changed it meanwhile.
 *
 * Getters and setters are foreign code. They run with a reference of their module, and
 * without a lock of ours that anything else waits for: they may sleep, or load modules.
 */
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>

#include "tunable.h"
#include "xk.h"

/* Until a value is put back that the setter did not take. */
#define RETRY_NS NSEC_PER_SEC

/* See tunable.h. */
DEFINE_MUTEX(xk_tunables_lock);
LIST_HEAD(xk_tunables);
LIST_HEAD(xk_meters);

static u32 last_id;

/* Initialised, and not about to exit. */
void xk_tunables_module_live(struct module *module)
{
	struct xk_live_tunable *tunable;
	struct xk_live_meter *meter;
	LIST_HEAD(parameters);
	LIST_HEAD(meters);

	mutex_lock(&xk_tunables_lock);
	list_for_each_entry(tunable, &xk_tunables, list)
		if (tunable->module == module)
			goto unlock;
	list_for_each_entry(meter, &xk_meters, list)
		if (meter->module == module)
			goto unlock;
	/* One that is going is not waited for any more: its notifier may have run. */
	if (module->state != MODULE_STATE_LIVE)
		goto unlock;
	xk_tunables_find(module, &parameters, &meters);
	list_for_each_entry(tunable, &parameters, list) {
		tunable->module = module;
		tunable->id = ++last_id;
	}
	list_for_each_entry(meter, &meters, list)
		meter->module = module;
	list_splice_tail(&parameters, &xk_tunables);
	list_splice_tail(&meters, &xk_meters);
unlock:
	mutex_unlock(&xk_tunables_lock);
}

/*
 * Its exit has run: nobody is in a call, and what was set has gone with its memory. NULL:
 * all modules, with no notifier left, nor anything that is held.
 */
void xk_tunables_forget(const struct module *module)
{
	struct xk_live_tunable *tunable, *next_tunable;
	struct xk_live_meter *meter, *next_meter;

	mutex_lock(&xk_tunables_lock);
	list_for_each_entry_safe(tunable, next_tunable, &xk_tunables, list) {
		if (module && tunable->module != module)
			continue;
		list_del(&tunable->list);
		kfree(tunable);
	}
	list_for_each_entry_safe(meter, next_meter, &xk_meters, list) {
		if (module && meter->module != module)
			continue;
		list_del(&meter->list);
		kfree(meter);
	}
	mutex_unlock(&xk_tunables_lock);
}

/*
 * To be called into; its module stays. NULL if there is none, its module is going, or
 * whoever asks was killed meanwhile.
 */
static struct xk_live_tunable *enter(u32 id)
{
	struct xk_live_tunable *tunable, *found = NULL;

	mutex_lock(&xk_tunables_lock);
	list_for_each_entry(tunable, &xk_tunables, list)
		if (tunable->id == id && try_module_get(tunable->module))
			found = tunable;
	mutex_unlock(&xk_tunables_lock);
	if (found && mutex_lock_killable(&found->call)) {
		module_put(found->module);
		found = NULL;
	}
	return found;
}

static void leave(struct xk_live_tunable *tunable)
{
	struct module *module = tunable->module;

	mutex_unlock(&tunable->call);
	/* From here on it may be gone. */
	module_put(module);
}

static int read_value(const struct xk_live_tunable *tunable, s64 *value)
{
	*value = 0;
	return xk_tunable_answer(tunable->is->get(tunable->is, value));
}

static int write_value(const struct xk_live_tunable *tunable, s64 value)
{
	return xk_tunable_answer(tunable->is->set(tunable->is, value));
}

static void let_go(struct xk_live_tunable *tunable)
{
	mutex_lock(&xk_tunables_lock);
	tunable->held = false;
	tunable->owner = NULL;
	tunable->lease_end = 0;
	mutex_unlock(&xk_tunables_lock);
}

static u64 end_of(u64 lease_ns)
{
	return lease_ns ? min_t(u64, ktime_get_boottime_ns() + lease_ns, KTIME_MAX) : 0;
}

/* `value` is in force, and was `before`; by us from now on, if it was not already. */
static void hold(struct xk_live_tunable *tunable, struct file *caller, s64 before, s64 value,
		 u64 lease_ns)
{
	mutex_lock(&xk_tunables_lock);
	if (!tunable->held)
		tunable->original = before;
	tunable->held = true;
	tunable->owner = caller;
	tunable->owner_pid = task_tgid_nr(current);
	tunable->ours = value;
	tunable->lease_end = end_of(lease_ns);
	mutex_unlock(&xk_tunables_lock);
}

/* It did not become what was asked for: back to what it was, at once if that can be. */
static int undo(struct xk_live_tunable *tunable, struct file *caller, s64 before,
		const struct xk_parameter_change *change, int ret, struct xk_error *error)
{
	const char *name = tunable->is->head.name;
	int unreadable;
	s64 after;

	unreadable = read_value(tunable, &after);
	if (ret)
		ret = xk_refuse(error, -EREMOTEIO, "%s: its setter does not take %lld (error %d)",
				name, change->value, -ret);
	else if (unreadable)
		ret = xk_refuse(error, -EIO,
				"%s was set to %lld, and cannot be read since (error %d)", name,
				change->value, -unreadable);
	else
		ret = xk_refuse(error, -EIO,
				"%s was set to %lld, but reads back differently: %lld", name,
				change->value, after);
	if (!unreadable && after == before)
		return ret;
	write_value(tunable, before);
	unreadable = read_value(tunable, &after);
	if (!unreadable && after == before)
		return ret;
	/* Then when the descriptor is closed. */
	hold(tunable, caller, before, unreadable ? change->value : after, change->lease_ns);
	return ret;
}

static bool is_owned(const struct xk_live_tunable *tunable, const struct file *caller)
{
	return tunable->held && tunable->owner == caller;
}

static int change_value(struct xk_live_tunable *tunable, struct file *caller,
			const struct xk_parameter_change *change, struct xk_error *error)
{
	const char *name = tunable->is->head.name;
	s64 before, after;
	int ret;

	if (!xk_tunable_accepts(tunable->is, change->value))
		return xk_refuse(error, -ERANGE, "%s: %lld is none of its values", name,
				 change->value);
	if (tunable->held && !tunable->owner)
		return xk_refuse(error, -EBUSY, "%s: is being put back to %lld", name,
				 tunable->original);
	if (tunable->held && tunable->owner != caller)
		return xk_refuse(error, -EPERM, "%s: is held by process %d", name,
				 tunable->owner_pid);
	ret = read_value(tunable, &before);
	if (ret)
		return xk_refuse(error, -EIO, "%s: cannot be read (error %d)", name, -ret);
	if (tunable->held && before != tunable->ours) {
		let_go(tunable);
		return xk_refuse(error, -ESTALE, "%s: somebody else has set it to %lld", name,
				 before);
	}
	ret = write_value(tunable, change->value);
	if (ret || read_value(tunable, &after) || after != change->value)
		return undo(tunable, caller, before, change, ret, error);
	if (after == (tunable->held ? tunable->original : before))
		let_go(tunable);
	else
		hold(tunable, caller, before, after, change->lease_ns);
	return 0;
}

static int change_hold(struct xk_live_tunable *tunable, struct file *caller,
		       const struct xk_parameter_change *change, struct xk_error *error)
{
	if (!is_owned(tunable, caller))
		return xk_refuse(error, -ESTALE,
				 "%s: is not held by this descriptor, or no longer",
				 tunable->is->head.name);
	if (change->op == XK_PARAMETER_KEEP) {
		let_go(tunable);
		return 0;
	}
	mutex_lock(&xk_tunables_lock);
	tunable->lease_end = end_of(change->lease_ns);
	mutex_unlock(&xk_tunables_lock);
	return 0;
}

static int check_change(const struct xk_parameter_change *change, struct xk_error *error)
{
	if (change->pad)
		return xk_refuse(error, -EINVAL, "pad is not 0");
	if (change->op > XK_PARAMETER_KEEP)
		return xk_refuse(error, -EINVAL, "operation %u is not known", change->op);
	if (change->op != XK_PARAMETER_SET && change->value)
		return xk_refuse(error, -EINVAL, "a value only goes with setting one");
	if (change->lease_ns > KTIME_MAX - ktime_get_boottime_ns())
		return xk_refuse(error, -EINVAL, "a lease of %llu ns never ends",
				 change->lease_ns);
	return 0;
}

int xk_parameter_change(struct file *caller, struct xk_parameter_change *change,
			struct xk_error *error)
{
	struct xk_live_tunable *tunable;
	int ret = check_change(change, error);

	if (ret)
		return ret;
	tunable = enter(change->id);
	if (!tunable)
		return xk_refuse(error, -ENOENT,
				 "no parameter has the number %u: its module is not loaded any more",
				 change->id);
	if (change->op == XK_PARAMETER_SET)
		ret = change_value(tunable, caller, change, error);
	else
		ret = change_hold(tunable, caller, change, error);
	leave(tunable);
	xk_lease_changed();
	return ret;
}

/* Whether it became what it was is what the getter says. */
static int write_back(struct xk_live_tunable *tunable)
{
	int ret = write_value(tunable, tunable->original), unreadable;
	s64 now;

	unreadable = read_value(tunable, &now);
	if (unreadable)
		return unreadable;
	if (now == tunable->original)
		return 0;
	mutex_lock(&xk_tunables_lock);
	tunable->ours = now;
	mutex_unlock(&xk_tunables_lock);
	return ret ?: -EIO;
}

/* With `call`, for a tunable whose end has come. */
static void put_back(struct xk_live_tunable *tunable)
{
	const char *module = tunable->module->name, *name = tunable->is->head.name;
	s64 now;
	int ret;

	ret = read_value(tunable, &now);
	if (!ret && now != tunable->original) {
		if (now != tunable->ours) {
			pr_info("xk: %s: %s: somebody else has set it to %lld: it stays\n",
				module, name, now);
			let_go(tunable);
			return;
		}
		ret = write_back(tunable);
	}
	if (!ret) {
		let_go(tunable);
		return;
	}
	pr_warn_ratelimited("xk: %s: %s: cannot be put back to %lld (error %d), which is tried again\n",
			    module, name, tunable->original, -ret);
	mutex_lock(&xk_tunables_lock);
	tunable->lease_end = ktime_get_boottime_ns() + RETRY_NS;
	mutex_unlock(&xk_tunables_lock);
}

/* One whose end has come, with a reference of its module; from now on nobody's. */
static struct xk_live_tunable *next_due(u64 now)
{
	struct xk_live_tunable *tunable;

	list_for_each_entry(tunable, &xk_tunables, list) {
		if (!tunable->held || !tunable->lease_end || tunable->lease_end > now)
			continue;
		if (try_module_get(tunable->module)) {
			if (tunable->owner)
				pr_info("xk: %s: %s: its lease is over\n", tunable->module->name,
					tunable->is->head.name);
			return tunable;
		}
		/* Going: the value goes with the module. */
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
		/* Its owner may have come first, with a longer lease. */
		due = tunable->held && tunable->lease_end && tunable->lease_end <= now;
		if (due)
			tunable->owner = NULL;
		mutex_unlock(&xk_tunables_lock);
		if (due)
			put_back(tunable);
		leave(tunable);
	}
}

static void expire(struct work_struct *unused)
{
	put_back_due(ktime_get_boottime_ns());
	xk_lease_changed();
}

static DECLARE_WORK(work, expire);

/* On a timer's interrupt. */
void xk_tunables_on_timer(void)
{
	queue_work(xk_workqueue, &work);
}

/* When the first lease ends; 0: none does. */
u64 xk_tunables_first_end(void)
{
	const struct xk_live_tunable *tunable;
	u64 first = 0;

	mutex_lock(&xk_tunables_lock);
	list_for_each_entry(tunable, &xk_tunables, list)
		if (tunable->held && tunable->lease_end &&
		    (!first || tunable->lease_end < first))
			first = tunable->lease_end;
	mutex_unlock(&xk_tunables_lock);
	return first;
}

/* What this owner holds, or, for NULL, what nobody does, is to be put back. Is there any? */
static bool end_holds(const struct file *owner)
{
	struct xk_live_tunable *tunable;
	bool any = false;

	mutex_lock(&xk_tunables_lock);
	list_for_each_entry(tunable, &xk_tunables, list) {
		if (!is_owned(tunable, owner))
			continue;
		tunable->owner = NULL;
		tunable->lease_end = 1;
		any = true;
	}
	mutex_unlock(&xk_tunables_lock);
	return any;
}

/*
 * The work is done by a thread of ours: this one may be dying, and a setter that waits
 * would be interrupted.
 */
void xk_tunables_release(struct file *owner)
{
	if (!end_holds(owner))
		return;
	queue_work(xk_workqueue, &work);
	flush_work(&work);
}

void xk_tunables_init(void)
{
	xk_module_for_each(xk_tunables_module_live);
}

/*
 * No descriptor is open, and no timer is left. Notifiers are: no module goes unseen while
 * its setter may be called.
 */
void xk_tunables_exit(void)
{
	cancel_work_sync(&work);
	/* Once more, for those whose setter did not take what they had. */
	if (end_holds(NULL))
		put_back_due(ktime_get_boottime_ns());
}
