// SPDX-License-Identifier: GPL-2.0-only
/* Information for user space about the parameters and meters of other modules. */
#include <linux/string.h>
#include <linux/timekeeping.h>

#include "tunable.h"
#include "uapi/xk_parameter.h"

static_assert((int)XK_METER_SENSOR == (int)XK_METER_IS_SENSOR);
static_assert((int)XK_METER_TARGET == (int)XK_METER_IS_TARGET);
static_assert((int)XK_METER_BOTTLENECK == (int)XK_METER_IS_BOTTLENECK);
static_assert(XK_METER_RATE == XK_METER_HAS_RATE);
static_assert(XK_METER_MINIMISE == XK_METER_LESS);
static_assert(XK_METER_PER == XK_METER_HAS_PER);

static u32 flags_of(const struct xk_live_tunable *tunable, const struct file *caller)
{
	u32 flags = 0;

	if (tunable->is->flags & XK_TUNABLE_REVERT)
		flags |= XK_PARAMETER_REVERT;
	if (tunable->held)
		flags |= XK_PARAMETER_HELD;
	if (tunable->held && tunable->owner == caller)
		flags |= XK_PARAMETER_OWN;
	return flags;
}

static void describe(const struct xk_live_tunable *tunable, const struct file *caller,
		     struct xk_parameter_info *info)
{
	const struct xk_tunable *is = tunable->is;
	u64 now = ktime_get_boottime_ns();
	unsigned int i;

	info->id = tunable->id;
	strscpy(info->module, tunable->module->name);
	strscpy(info->subsystem, is->head.subsystem);
	strscpy(info->name, is->head.name);
	if (is->only_if)
		strscpy(info->only_if, is->only_if);
	info->only_if_value = is->only_if_value;
	info->steps = is->steps;
	info->min = is->min;
	info->max = is->max;
	info->step = is->step;
	info->default_value = is->default_value;
	info->settle_ms = is->settle_ms;
	if (is->steps == XK_TUNABLE_CHOICE)
		info->nr_choices = is->nr_choices;
	for (i = 0; i < info->nr_choices; i++)
		strscpy(info->choices[i], is->choices[i]);
	info->flags = flags_of(tunable, caller);
	info->original = tunable->original;
	info->owner_pid = tunable->owner ? tunable->owner_pid : 0;
	if (tunable->held && tunable->lease_end)
		info->lease_ns = tunable->lease_end > now ? tunable->lease_end - now : 1;
}

int xk_parameter_info(struct file *caller, struct xk_parameter_info *info)
{
	struct xk_live_tunable *tunable, *found = NULL;
	u32 index = info->index;
	struct module *module;

	memset(info, 0, sizeof(*info));
	info->index = index;
	mutex_lock(&xk_tunables_lock);
	list_for_each_entry(tunable, &xk_tunables, list) {
		if (index--)
			continue;
		found = tunable;
		module = tunable->module;
		describe(tunable, caller, info);
		if (!try_module_get(module))
			info->error = -ENODEV;
		break;
	}
	mutex_unlock(&xk_tunables_lock);
	if (!found)
		return -ENOENT;
	if (info->error)
		return 0;
	if (mutex_lock_killable(&found->call)) {
		module_put(module);
		return -EINTR;
	}
	info->error = xk_tunable_answer(found->is->get(found->is, &info->value));
	/* The state at the time at which the value was read. */
	mutex_lock(&xk_tunables_lock);
	describe(found, caller, info);
	mutex_unlock(&xk_tunables_lock);
	mutex_unlock(&found->call);
	module_put(module);
	return 0;
}

int xk_meter_info(struct xk_meter_info *info)
{
	struct xk_live_meter *meter, *found = NULL;
	u32 index = info->index;
	struct module *module;

	memset(info, 0, sizeof(*info));
	info->index = index;
	mutex_lock(&xk_tunables_lock);
	list_for_each_entry(meter, &xk_meters, list) {
		if (index--)
			continue;
		found = meter;
		module = meter->module;
		strscpy(info->module, module->name);
		strscpy(info->subsystem, meter->is->head.subsystem);
		strscpy(info->name, meter->is->head.name);
		info->role = meter->is->role;
		info->flags = meter->is->flags;
		info->limit = meter->is->limit;
		if (!try_module_get(module))
			info->error = -ENODEV;
		break;
	}
	mutex_unlock(&xk_tunables_lock);
	if (!found)
		return -ENOENT;
	if (info->error)
		return 0;
	info->error = xk_tunable_answer(found->is->get(found->is, &info->of, &info->per));
	module_put(module);
	return 0;
}
