// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loading and removal of tunes. A tune lives as long as the file descriptor that loaded it, unless
 * it is detached. When it ends, a transition (transition/) brings the default into force. After
 * that the original bytes are restored.
 */
#include <linux/ctype.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "core/lease.h"
#include "core/load.h"
#include "core/restore.h"
#include "core/scope.h"
#include "core/site.h"
#include "core/sites.h"
#include "core/table.h"
#include "core/values.h"
#include "model/trace.h"
#include "policy/policy.h"

#define LOAD_FLAGS (XK_LOAD_DETOUR | XK_LOAD_DETOUR_ONLY | XK_LOAD_PATCH | XK_LOAD_PATCH_ONLY)

static u32 last_id;

static void free_tune(struct xk_tune *tune)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++)
		xk_site_destroy(&tune->sites[i]);
	for (i = 0; i < tune->nr_scopes; i++)
		xk_scope_destroy(&tune->scopes[i]);
	kvfree(tune->scopes);
	kvfree(tune->compiled);
	/* Disarmed, so no handler uses them; but a thread that was switched out in a stub may. */
	if (tune->values && tune->values->in_stubs)
		xk_values_retire(tune->values);
	else
		xk_values_free(tune->values);
	xk_policy_put(tune->policy);
	for (i = 0; i < tune->nr_ignored; i++)
		put_task_struct(tune->ignored[i]);
	kvfree(tune);
}

/* The default is in force everywhere. */
void xk_tune_remove(struct xk_tune *tune)
{
	trace_xk_unload(tune);
	xk_sites_disarm(tune);
	list_del(&tune->list);
	xk_deadline_set(&tune->lease, 0);
	free_tune(tune);
	xk_backends_flush();
}

static int check_name(const struct xk_table *table, struct xk_error *error)
{
	size_t len = strnlen(table->name, sizeof(table->name));
	size_t i;

	if (!len || len == sizeof(table->name))
		return xk_refuse(error, -EINVAL, "the name is empty or not terminated");
	for (i = 0; i < len; i++)
		if (!isprint(table->name[i]))
			return xk_refuse(error, -EINVAL, "the name is not printable");
	return 0;
}

static int fill_values(struct xk_tune *tune, const struct xk_request *request,
		       struct xk_error *error)
{
	const struct xk_table *table = request->table;
	const size_t size = array_size(table->nr_values, sizeof(*tune->compiled));
	unsigned int i;

	tune->min = table->min;
	tune->max = table->max;
	tune->default_value = table->default_value;
	tune->compiled = kvmalloc(size, GFP_KERNEL);
	if (!tune->compiled)
		return -ENOMEM;
	memcpy(tune->compiled, request->values, size);
	tune->nr_compiled = table->nr_values;
	for (i = 1; i < tune->nr_compiled; i++)
		if (tune->compiled[i - 1] >= tune->compiled[i])
			return xk_refuse(error, -EINVAL,
					 "%s: value %lld follows %lld; they must ascend",
					 tune->name, tune->compiled[i], tune->compiled[i - 1]);
	if (!xk_tune_accepts(tune, tune->default_value))
		return xk_refuse(error, -EINVAL,
				 "%s: default %lld is neither within %lld..%lld nor one of %u values",
				 tune->name, tune->default_value, tune->min, tune->max,
				 tune->nr_compiled);
	return 0;
}

static int fill_tune(struct xk_tune *tune, const struct xk_request *request,
		     struct xk_error *error)
{
	unsigned int i;
	int ret = 0;

	tune->scopes = kvcalloc(request->table->nr_scopes, sizeof(*tune->scopes), GFP_KERNEL);
	if (!tune->scopes)
		return -ENOMEM;
	tune->nr_scopes = request->table->nr_scopes;
	for (i = 0; i < tune->nr_sites && !ret; i++)
		ret = xk_site_init(tune, i, request, error);
	for (i = 0; i < tune->nr_scopes && !ret; i++)
		ret = xk_scope_init(tune, i, request, error);
	return ret;
}

static struct xk_tune *create_tune(const struct xk_request *request, struct xk_error *error)
{
	struct xk_tune *tune;
	int ret = check_name(request->table, error);

	if (ret)
		return ERR_PTR(ret);
	tune = kvzalloc(struct_size(tune, sites, request->table->nr_sites), GFP_KERNEL);
	if (!tune)
		return ERR_PTR(-ENOMEM);
	tune->nr_sites = request->table->nr_sites;
	strscpy(tune->name, request->table->name);
	tune->least_mode = request->is_signed ? request->table->mode : XK_MODE_NOW;
	tune->load_flags = request->flags;
	tune->traits = xk_backend_traits(request->flags);
	ret = fill_values(tune, request, error);
	if (!ret)
		ret = fill_tune(tune, request, error);
	if (ret) {
		free_tune(tune);
		return ERR_PTR(ret);
	}
	return tune;
}

/* The default is in force, so arming one site after the other changes nothing. */
static int activate(struct xk_tune *tune, struct xk_error *error)
{
	struct xk_tune *other;
	int ret;

	list_for_each_entry(other, &xk_tunes, list)
		if (!strcmp(other->name, tune->name))
			return xk_refuse(error, -EBUSY,
					 "%s is already tuned: tune %u, value %lld, process %d",
					 tune->name, other->id, other->values->value,
					 other->owner_pid);
	/* Scopes first: if one is refused, no site has been prepared yet. */
	ret = xk_scopes_verify(tune, error);
	if (!ret)
		ret = xk_sites_verify(tune, error);
	if (ret)
		return ret;
	tune->values = xk_values_create(tune, tune->default_value, NULL);
	if (!tune->values)
		return -ENOMEM;
	return xk_sites_arm(tune, error);
}

int xk_tune_load(struct file *owner, const struct xk_request *request, struct xk_load *load,
		 struct xk_error *error)
{
	struct xk_tune *tune;
	int ret;

	if (request->flags & ~LOAD_FLAGS)
		return xk_refuse(error, -EINVAL, "unknown flags %#x", request->flags);
	tune = create_tune(request, error);
	if (IS_ERR(tune))
		return PTR_ERR(tune);

	mutex_lock(&xk_lock);
	tune->owner = owner;
	tune->owner_pid = task_tgid_nr(current);
	xk_lease_create(tune);
	tune->loaded_at = ktime_get_boottime_ns();
	ret = activate(tune, error);
	if (!ret) {
		tune->id = ++last_id;
		load->id = tune->id;
		list_add_tail(&tune->list, &xk_tunes);
		trace_xk_load(tune);
	}
	/* Under xk_lock: some of its sites may have stubs. */
	if (ret)
		free_tune(tune);
	xk_backends_flush();
	xk_unlock_restored();
	return ret;
}

int xk_tune_detach(struct file *caller, u32 id, struct xk_error *error)
{
	struct xk_tune *tune;
	int ret = 0;

	mutex_lock(&xk_lock);
	tune = xk_tune_find_owned(caller, id, error);
	if (IS_ERR(tune))
		ret = PTR_ERR(tune);
	else
		tune->owner = NULL;
	mutex_unlock(&xk_lock);
	return ret;
}

void xk_tune_module_coming(const struct module *module)
{
	struct xk_tune *tune;

	mutex_lock(&xk_lock);
	list_for_each_entry(tune, &xk_tunes, list) {
		xk_sites_module_coming(tune, module);
		xk_policy_module_coming(tune);
	}
	mutex_unlock(&xk_lock);
}

/*
 * A tuned module is being removed, and its exit function has run. Its sites are disarmed while its
 * text still exists, and wait for it. Other sites are not affected.
 */
void xk_tune_module_going(const struct module *module)
{
	struct xk_tune *tune;

	mutex_lock(&xk_lock);
	list_for_each_entry(tune, &xk_tunes, list) {
		xk_sites_await_module(tune, module);
		xk_policy_module_going(tune, module);
		xk_scopes_await_module(tune, module);
	}
	xk_backends_module_going(module);
	xk_unlock_restored();
}
