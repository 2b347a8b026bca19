// SPDX-License-Identifier: GPL-2.0-only
/* Information for user space about tunes and their sites. */
#include <linux/minmax.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#include "control/info.h"
#include "core/site.h"
#include "model/tune.h"
#include "transition/ignore.h"
#include "transition/request.h"

static u32 tune_flags(const struct xk_tune *tune)
{
	u32 flags = 0;
	unsigned int i;

	if (!tune->owner)
		flags |= XK_TUNE_DETACHED;
	if (tune->values->policy)
		flags |= XK_TUNE_POLICY;
	for (i = 0; i < tune->nr_sites; i++)
		if (xk_site_ill(&tune->sites[i]))
			flags |= XK_TUNE_BROKEN;
	return flags;
}

int xk_tune_info(struct xk_tune_info *info)
{
	struct xk_tune *tune;
	u32 index = info->index;
	int ret = -ENOENT;

	memset(info, 0, sizeof(*info));
	info->index = index;
	mutex_lock(&xk_lock);
	list_for_each_entry(tune, &xk_tunes, list) {
		if (index--)
			continue;
		info->id = tune->id;
		strscpy(info->name, tune->name);
		info->value = tune->values->value;
		info->default_value = tune->default_value;
		info->min = tune->min;
		info->max = tune->max;
		info->nr_values = tune->nr_compiled;
		info->nr_sites = tune->nr_sites;
		info->flags = tune_flags(tune);
		info->owner_pid = tune->owner_pid;
		info->nr_scopes = tune->nr_scopes;
		info->mode = tune->mode;
		info->state = xk_transition_state(tune, &info->blocking);
		info->age_ns = ktime_get_boottime_ns() - tune->loaded_at;
		info->lease_ns = xk_deadline_left(&tune->lease);
		info->nr_ignored = xk_ignored_describe(tune, info->ignored);
		ret = 0;
		break;
	}
	mutex_unlock(&xk_lock);
	return ret;
}

int xk_tune_values(u32 id, s64 *values, u32 *nr_values)
{
	struct xk_tune *tune;
	int ret = -ENOENT;

	mutex_lock(&xk_lock);
	tune = xk_tune_find(id);
	if (tune) {
		memcpy(values, tune->compiled,
		       min(*nr_values, tune->nr_compiled) * sizeof(*values));
		*nr_values = tune->nr_compiled;
		ret = 0;
	}
	mutex_unlock(&xk_lock);
	return ret;
}

int xk_tune_site_info(struct xk_site_info *info)
{
	u32 id = info->id, index = info->index;
	struct xk_tune *tune;
	int ret = -ENOENT;

	memset(info, 0, sizeof(*info));
	info->id = id;
	info->index = index;
	mutex_lock(&xk_lock);
	tune = xk_tune_find(id);
	if (tune && index < tune->nr_sites) {
		xk_site_describe(&tune->sites[index], info);
		ret = 0;
	}
	mutex_unlock(&xk_lock);
	return ret;
}
