// SPDX-License-Identifier: GPL-2.0-only
/*
 * The parameters that other modules describe, and who has set them. A value that is set through a
 * descriptor is *held*. It returns to the original when the descriptor is closed or its lease ends,
 * unless something else has changed it meanwhile (lease.c).
 *
 * Getters and setters are code of other modules. They run with a reference to their module, and
 * without a lock that anything else waits for: they may sleep or load modules.
 */
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "base/error.h"
#include "tunable.h"
#include "uapi/xk_parameter.h"

/* See tunable.h. */
DEFINE_MUTEX(xk_tunables_lock);
LIST_HEAD(xk_tunables);
LIST_HEAD(xk_meters);

static u32 last_id;

/* The module is initialised and not being removed. */
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
	/* Ignore a module that is being removed: its notifier may have run already. */
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
 * The exit function of the module has run. No one is in a call, and what was set is gone with the
 * module's memory. NULL: all modules; no notifier is left, and nothing is held.
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
 * Returns the tunable for a call, with its module pinned and `call` held. Returns NULL if it does
 * not exist, its module is being removed, or the caller was killed meanwhile.
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

void xk_tunable_leave(struct xk_live_tunable *tunable)
{
	struct module *module = tunable->module;

	mutex_unlock(&tunable->call);
	/* From here on it may be freed. */
	module_put(module);
}

int xk_tunable_read(const struct xk_live_tunable *tunable, s64 *value)
{
	lockdep_assert_held(&tunable->call);
	*value = 0;
	return xk_tunable_answer(tunable->is->get(tunable->is, value));
}

int xk_tunable_write(const struct xk_live_tunable *tunable, s64 value)
{
	lockdep_assert_held(&tunable->call);
	return xk_tunable_answer(tunable->is->set(tunable->is, value));
}

void xk_tunable_let_go(struct xk_live_tunable *tunable)
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

/* Holds `value`, which is in force. `before` is the original, unless there is a hold already. */
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

/* The value did not become what was requested. Restores the previous one, at once if possible. */
static int undo(struct xk_live_tunable *tunable, struct file *caller, s64 before,
		const struct xk_parameter_change *change, int ret, struct xk_error *error)
{
	const char *name = tunable->is->head.name;
	int unreadable;
	s64 after;

	unreadable = xk_tunable_read(tunable, &after);
	if (ret)
		ret = xk_refuse(error, -EREMOTEIO, "%s: its setter rejects %lld (error %d)",
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
	xk_tunable_write(tunable, before);
	unreadable = xk_tunable_read(tunable, &after);
	if (!unreadable && after == before)
		return ret;
	/* Then it is restored when the descriptor is closed. */
	hold(tunable, caller, before, unreadable ? change->value : after, change->lease_ns);
	return ret;
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
		return xk_refuse(error, -EBUSY, "%s: is being restored to %lld", name,
				 tunable->original);
	if (tunable->held && tunable->owner != caller)
		return xk_refuse(error, -EPERM, "%s: is held by process %d", name,
				 tunable->owner_pid);
	ret = xk_tunable_read(tunable, &before);
	if (ret)
		return xk_refuse(error, -EIO, "%s: cannot be read (error %d)", name, -ret);
	if (tunable->held && before != tunable->ours) {
		xk_tunable_let_go(tunable);
		return xk_refuse(error, -ESTALE, "%s: something else has set it to %lld", name,
				 before);
	}
	ret = xk_tunable_write(tunable, change->value);
	if (ret || xk_tunable_read(tunable, &after) || after != change->value)
		return undo(tunable, caller, before, change, ret, error);
	if (after == (tunable->held ? tunable->original : before))
		xk_tunable_let_go(tunable);
	else
		hold(tunable, caller, before, after, change->lease_ns);
	return 0;
}

static int change_hold(struct xk_live_tunable *tunable, struct file *caller,
		       const struct xk_parameter_change *change, struct xk_error *error)
{
	if (!xk_tunable_is_owned(tunable, caller))
		return xk_refuse(error, -ESTALE,
				 "%s: is not held by this descriptor, or no longer",
				 tunable->is->head.name);
	if (change->op == XK_PARAMETER_KEEP) {
		xk_tunable_let_go(tunable);
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
		return xk_refuse(error, -EINVAL, "unknown operation %u", change->op);
	if (change->op != XK_PARAMETER_SET && change->value)
		return xk_refuse(error, -EINVAL, "only XK_PARAMETER_SET takes a value");
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
	xk_tunable_leave(tunable);
	xk_tunables_start_timer();
	return ret;
}
