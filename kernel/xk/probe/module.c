// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places in modules that come and go. When a module is removed, its places wait: its text is about
 * to be freed, and so is everything of xk.ko in it. When a module of this name is loaded, each of
 * their functions is looked for by its name and bytes. The function tracer or a kprobe reaches the
 * places then. A jump does not: that no code branches into its window was shown for the image
 * before.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "base/lock.h"
#include "core/verify.h"
#include "model/backend.h"
#include "probe/attach.h"
#include "probe/point.h"
#include "probe/traced.h"
#include "text/symbol.h"

static const char not_analysed[] = "its module was loaded again, and is not analysed";

void xk_probed_functions_free(struct xk_probed_function *functions, u32 nr)
{
	u32 i;

	for (i = 0; functions && i < nr; i++) {
		kvfree(functions[i].analysed.bytes);
		kvfree(functions[i].analysed.mask);
	}
	kvfree(functions);
}

struct xk_probed_function *xk_probed_function_at(const struct xk_attachment *attachment,
						 unsigned long requested)
{
	unsigned int low = 0, high = attachment->nr_functions;
	struct xk_probed_function *function;

	/* The last one that begins there or before. */
	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (attachment->functions[middle].requested <= requested)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return NULL;
	function = &attachment->functions[low - 1];
	return requested - function->requested < function->analysed.len ? function : NULL;
}

/* Stores the address in `function`; 0 if it is not the analysed one. Returns 0 or -ENOMEM. */
static int verify(struct xk_probed_function *function, const struct module *module,
		  unsigned long address)
{
	u32 len = function->analysed.len;
	struct xk_error error = {};
	u8 *view = kvmalloc(len, GFP_KERNEL);
	int ret = -ENOMEM;

	function->place.function = address;
	if (view)
		ret = xk_place_verify(&function->place, module, 0, view, len, &error);
	kvfree(view);
	if (ret)
		function->place.function = 0;
	strscpy(function->reason, ret == -ENOMEM ? "no memory" : error.text);
	return ret == -ENOMEM ? ret : 0;
}

int xk_probed_functions_verify(struct xk_attachment *attachment)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < attachment->nr_functions && !ret; i++) {
		struct xk_probed_function *function = &attachment->functions[i];
		const struct module *module = xk_module_get(function->place.module);

		if (module && module->state == MODULE_STATE_LIVE)
			ret = verify(function, module, function->requested);
		xk_module_put(module);
	}
	return ret;
}

static const char *reach(struct xk_point *point, const struct xk_probe_program *program)
{
	bool by_tracer = xk_is_traced(point->address) && !program->needs_kprobes;

	if (point->is_traced && program->needs_kprobes)
		return "bpf_get_func_ip() needs a kprobe, and other probes of this entry have none";
	if (point->in_code || point->is_traced || point->has_kprobe)
		return NULL;
	if (by_tracer)
		return xk_traced_add(&point, 1) ? "the function tracer refuses it" : NULL;
	if (xk_point_trap(point) || xk_point_start(point))
		return "the kernel forbids a kprobe here";
	return NULL;
}

static const char *find_point(struct xk_plan *plan, struct xk_hook *hook, unsigned long address)
{
	const char *why = NULL;

	if (hook->attachment->jumps_only)
		return not_analysed;
	if (xk_backends_hold_value(NULL, address))
		return "a tune changes this instruction";
	hook->point = xk_point_find(address);
	if (hook->point)
		return NULL;
	hook->point = xk_point_create(plan, address, &why);
	if (hook->point)
		hook->point->why_no_jump = not_analysed;
	return why;
}

static void give_up(struct xk_hook *hook)
{
	struct xk_point *point = hook->point;

	hook->point = NULL;
	if (!point || point->first)
		return;
	xk_point_forget(point);
	/* The function tracer may have found it already. */
	synchronize_rcu();
	xk_point_free(point);
}

static void serve(struct xk_plan *plan, struct xk_hook *hook)
{
	const struct xk_probed_function *function = hook->function;
	unsigned long offset = hook->requested - function->requested;

	hook->why_waiting = find_point(plan, hook, function->place.function + offset);
	if (!hook->why_waiting)
		hook->why_waiting = reach(hook->point, hook->program);
	if (hook->why_waiting) {
		give_up(hook);
		return;
	}
	xk_hook_add(hook);
	hook->added = true;
}

static bool is_of(const struct xk_probed_function *function, const struct module *module)
{
	return !strcmp(function->place.module, module->name);
}

static void arrive(struct xk_plan *plan, struct xk_attachment *attachment,
		   const struct module *module)
{
	unsigned int i;

	for (i = 0; i < attachment->nr_functions; i++) {
		struct xk_probed_function *function = &attachment->functions[i];

		if (is_of(function, module) && !function->place.function)
			verify(function, module, 0);
	}
	for (i = 0; i < attachment->nr; i++) {
		struct xk_hook *hook = &attachment->hooks[i];

		if (hook->function && !hook->point && is_of(hook->function, module) &&
		    hook->function->place.function)
			serve(plan, hook);
	}
}

static bool awaits(const struct xk_attachment *attachment, const struct module *module)
{
	unsigned int i;

	for (i = 0; i < attachment->nr_functions; i++)
		if (is_of(&attachment->functions[i], module))
			return true;
	return false;
}

void xk_probes_module_coming(const struct module *module)
{
	struct xk_attachment *attachment;

	mutex_lock(&xk_lock);
	list_for_each_entry(attachment, &xk_attachments, list) {
		struct xk_plan plan = { .coming = module };

		if (!awaits(attachment, module))
			continue;
		INIT_LIST_HEAD(&plan.jumps);
		xk_allowed_create(&plan.allowed);
		arrive(&plan, attachment, module);
		xk_function_free(&plan.function);
		xk_allowed_free(&plan.allowed);
	}
	mutex_unlock(&xk_lock);
}

static bool is_in(const struct xk_attachment *attachment, const struct module *module)
{
	unsigned int i;

	for (i = 0; i < attachment->nr; i++) {
		const struct xk_hook *hook = &attachment->hooks[i];

		if (hook->point && hook->point->module == module)
			return true;
	}
	return false;
}

static void await(struct xk_attachment *attachment, const struct module *module)
{
	unsigned int i;

	if (is_in(attachment, module))
		xk_attachment_leave(attachment, module);
	for (i = 0; i < attachment->nr_functions; i++) {
		struct xk_probed_function *function = &attachment->functions[i];

		if (!is_of(function, module))
			continue;
		function->place.function = 0;
		function->reason[0] = '\0';
	}
}

/* Its exit function has run. The text still exists, and nothing executes it any more. */
void xk_probes_module_going(const struct module *module)
{
	struct xk_attachment *attachment;

	mutex_lock(&xk_lock);
	list_for_each_entry(attachment, &xk_attachments, list)
		await(attachment, module);
	mutex_unlock(&xk_lock);
	xk_retired_forget(module);
}
