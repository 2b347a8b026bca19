// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tunes: what is loaded, under which value, and who owns it. A tune lives as
 * long as the descriptor that loaded it, unless it was detached; when it goes,
 * the default goes into force at all its sites at once and then the original
 * bytes come back.
 */
#include <linux/ctype.h>
#include <linux/log2.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>

#include "backend.h"
#include "xk.h"

/* See xk.h. */
DEFINE_MUTEX(xk_lock);
LIST_HEAD(xk_tunes);

static u32 last_id;

static struct xk_tune *find_tune(u32 id)
{
	struct xk_tune *tune;

	list_for_each_entry(tune, &xk_tunes, list)
		if (tune->id == id)
			return tune;
	return NULL;
}

/* A tune with a living owner belongs to nobody else. */
static struct xk_tune *find_owned(struct file *caller, u32 id)
{
	struct xk_tune *tune = find_tune(id);

	if (!tune)
		return ERR_PTR(-ENOENT);
	if (tune->owner && tune->owner != caller)
		return ERR_PTR(-EBUSY);
	return tune;
}

static void free_tune(struct xk_tune *tune)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++)
		xk_site_destroy(&tune->sites[i]);
	xk_values_free(tune->values);
	kvfree(tune);
}

/*
 * One store, seen by all sites in code: the moment at which the value changes.
 * Objects follow.
 */
static int publish(struct xk_tune *tune, s64 value)
{
	struct xk_values *old = tune->values;
	struct xk_values *new;
	unsigned int i;

	new = xk_values_create(tune, value);
	if (!new)
		return -ENOMEM;
	/* The block is complete before a handler can find it. */
	smp_store_release(&tune->values, new);
	for (i = 0; i < tune->nr_sites; i++)
		if (tune->sites[i].in_data && tune->sites[i].phase == XK_PHASE_ARMED)
			xk_data_write(&tune->sites[i], value);
	/* Handlers run with preemption disabled. */
	synchronize_rcu();
	xk_values_free(old);
	return 0;
}

static void unload(struct xk_tune *tune)
{
	/*
	 * Sites are disarmed one after the other; the default in force makes
	 * that invisible. Without memory it is visible, and still happens.
	 */
	publish(tune, tune->default_value);
	xk_sites_disarm(tune);
	list_del(&tune->list);
	free_tune(tune);
}

static int check_name(const struct xk_load *load, struct xk_error *error)
{
	size_t len = strnlen(load->name, sizeof(load->name));
	size_t i;

	if (!len || len == sizeof(load->name))
		return xk_refuse(error, -EINVAL, "the name is empty or not terminated");
	for (i = 0; i < len; i++)
		if (!isprint(load->name[i]))
			return xk_refuse(error, -EINVAL, "the name is not printable");
	return 0;
}

static bool is_proved(s64 value, s64 min, s64 max, bool powers_of_two)
{
	return value >= min && value <= max &&
	       (!powers_of_two || (value > 0 && is_power_of_2(value)));
}

static bool is_proved_by(const struct xk_load *load, s64 value)
{
	return is_proved(value, load->min, load->max, load->flags & XK_LOAD_POWERS_OF_TWO);
}

static int check_load(const struct xk_load *load, struct xk_error *error)
{
	int ret = check_name(load, error);

	if (ret)
		return ret;
	if (!load->nr_sites || load->nr_sites > XK_MAX_SITES)
		return xk_refuse(error, -EINVAL, "%s: %u sites; 1 to %u are possible",
				 load->name, load->nr_sites, XK_MAX_SITES);
	if (load->flags & ~XK_LOAD_POWERS_OF_TWO || load->pad)
		return xk_refuse(error, -EINVAL, "%s: unknown flags %#x", load->name, load->flags);
	if (load->min > load->max || !is_proved_by(load, load->default_value))
		return xk_refuse(error, -EINVAL, "%s: default %lld is not within %lld..%lld",
				 load->name, load->default_value, load->min, load->max);
	if (!is_proved_by(load, load->value))
		return xk_refuse(error, -ERANGE, "%s: %lld is outside the proved range %lld..%lld",
				 load->name, load->value, load->min, load->max);
	return 0;
}

static struct xk_tune *create_tune(const struct xk_load *load, struct xk_error *error)
{
	const struct xk_site __user *user = u64_to_user_ptr(load->sites);
	struct xk_tune *tune;
	unsigned int i;
	int ret;

	tune = kvzalloc(struct_size(tune, sites, load->nr_sites), GFP_KERNEL);
	if (!tune)
		return ERR_PTR(-ENOMEM);
	tune->nr_sites = load->nr_sites;
	strscpy(tune->name, load->name);
	tune->default_value = load->default_value;
	tune->min = load->min;
	tune->max = load->max;
	tune->powers_of_two = load->flags & XK_LOAD_POWERS_OF_TWO;
	for (i = 0; i < tune->nr_sites; i++) {
		ret = xk_site_init(tune, i, user + i, error);
		if (ret) {
			free_tune(tune);
			return ERR_PTR(ret);
		}
	}
	return tune;
}

static int activate(struct xk_tune *tune, s64 value, struct xk_error *error)
{
	struct xk_tune *other;
	int ret;

	list_for_each_entry(other, &xk_tunes, list)
		if (!strcmp(other->name, tune->name))
			return xk_refuse(error, -EBUSY,
					 "%s is already tuned: tune %u, value %lld, process %d",
					 tune->name, other->id, other->values->value,
					 other->owner_pid);
	ret = xk_sites_verify(tune, error);
	if (ret)
		return ret;
	/* The default, so that arming site after site changes nothing. */
	tune->values = xk_values_create(tune, tune->default_value);
	if (!tune->values)
		return -ENOMEM;
	ret = xk_sites_arm(tune, error);
	if (ret)
		return ret;
	ret = publish(tune, value);
	if (ret)
		xk_sites_disarm(tune);
	return ret;
}

int xk_tune_load(struct file *owner, struct xk_load *load, struct xk_error *error)
{
	struct xk_tune *tune;
	int ret;

	ret = check_load(load, error);
	if (ret)
		return ret;
	tune = create_tune(load, error);
	if (IS_ERR(tune))
		return PTR_ERR(tune);

	mutex_lock(&xk_lock);
	tune->owner = owner;
	tune->owner_pid = task_tgid_nr(current);
	tune->loaded_at = ktime_get_boottime_ns();
	ret = activate(tune, load->value, error);
	if (!ret) {
		tune->id = ++last_id;
		load->id = tune->id;
		list_add_tail(&tune->list, &xk_tunes);
	}
	mutex_unlock(&xk_lock);
	if (ret)
		free_tune(tune);
	return ret;
}

int xk_tune_set(struct file *caller, u32 id, s64 value)
{
	struct xk_tune *tune;
	int ret;

	mutex_lock(&xk_lock);
	tune = find_owned(caller, id);
	if (IS_ERR(tune)) {
		ret = PTR_ERR(tune);
	} else if (!is_proved(value, tune->min, tune->max, tune->powers_of_two)) {
		pr_info("xk: %s: %lld is outside the proved range %lld..%lld\n",
			tune->name, value, tune->min, tune->max);
		ret = -ERANGE;
	} else {
		ret = publish(tune, value);
	}
	mutex_unlock(&xk_lock);
	return ret;
}

int xk_tune_unload(struct file *caller, u32 id)
{
	struct xk_tune *tune;
	int ret = 0;

	mutex_lock(&xk_lock);
	tune = find_owned(caller, id);
	if (IS_ERR(tune))
		ret = PTR_ERR(tune);
	else
		unload(tune);
	mutex_unlock(&xk_lock);
	return ret;
}

int xk_tune_detach(struct file *caller, u32 id)
{
	struct xk_tune *tune;
	int ret = 0;

	mutex_lock(&xk_lock);
	tune = find_owned(caller, id);
	if (IS_ERR(tune))
		ret = PTR_ERR(tune);
	else
		tune->owner = NULL;
	mutex_unlock(&xk_lock);
	return ret;
}

static u32 tune_flags(const struct xk_tune *tune)
{
	u32 flags = 0;
	unsigned int i;

	if (!tune->owner)
		flags |= XK_TUNE_DETACHED;
	if (tune->powers_of_two)
		flags |= XK_TUNE_POWERS_OF_TWO;
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
		info->nr_sites = tune->nr_sites;
		info->flags = tune_flags(tune);
		info->owner_pid = tune->owner_pid;
		info->age_ns = ktime_get_boottime_ns() - tune->loaded_at;
		ret = 0;
		break;
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
	tune = find_tune(id);
	if (tune && index < tune->nr_sites) {
		xk_site_describe(&tune->sites[index], info);
		ret = 0;
	}
	mutex_unlock(&xk_lock);
	return ret;
}

void xk_tune_release(struct file *owner)
{
	struct xk_tune *tune, *next;

	mutex_lock(&xk_lock);
	list_for_each_entry_safe(tune, next, &xk_tunes, list)
		if (tune->owner == owner)
			unload(tune);
	mutex_unlock(&xk_lock);
}

void xk_tune_unload_all(void)
{
	struct xk_tune *tune, *next;

	mutex_lock(&xk_lock);
	list_for_each_entry_safe(tune, next, &xk_tunes, list)
		unload(tune);
	mutex_unlock(&xk_lock);
}

/*
 * A module is loaded; nothing of it has run. The value in force is computed
 * anew, as it is for code that has just been linked, and then its sites are
 * armed: the module never runs with another value.
 */
void xk_tune_module_coming(const struct module *module)
{
	struct xk_tune *tune;

	mutex_lock(&xk_lock);
	list_for_each_entry(tune, &xk_tunes, list) {
		if (!xk_sites_verify_module(tune, module))
			continue;
		if (publish(tune, tune->values->value))
			xk_sites_give_up_ready(tune);
		else
			xk_sites_arm_module(tune);
	}
	mutex_unlock(&xk_lock);
}

/*
 * A module that is tuned is unloaded, its exit has run. Its sites are disarmed
 * while its text is still there, and wait for it; the others stay as they are.
 */
void xk_tune_module_going(const struct module *module)
{
	struct xk_tune *tune;

	mutex_lock(&xk_lock);
	list_for_each_entry(tune, &xk_tunes, list)
		xk_sites_await_module(tune, module);
	mutex_unlock(&xk_lock);
}
