// SPDX-License-Identifier: GPL-2.0-only
/*
 * The scopes (safe spans) of a tune: copied from user space, verified like the functions of sites,
 * and without an address while their module is not loaded.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "core/analysed.h"
#include "core/scope.h"
#include "core/table.h"
#include "core/verify.h"
#include "text/symbol.h"

/*
 * The idle tasks are in no thread list, so scan.c does not see them. They are switched out in these
 * functions, and in no function that these call.
 */
static const char *const idle_functions[] = {
	"do_idle", "schedule_idle", "__schedule", "cpu_startup_entry", "start_secondary",
	"rest_init", "start_kernel",
};

static int check_idle(const struct xk_place *place, struct xk_error *error)
{
	if (!place->module[0] &&
	    match_string(idle_functions, ARRAY_SIZE(idle_functions), place->symbol) >= 0)
		return xk_refuse(error, -EOPNOTSUPP, "scope in %s: idle tasks never leave it",
				 place->symbol);
	return 0;
}

static int check_ranges(const struct xk_live_scope *scope, u32 text_len, struct xk_error *error)
{
	u32 behind = 0;
	unsigned int i;

	for (i = 0; i < scope->nr_ranges; i++) {
		const struct xk_range *range = &scope->ranges[i];

		if (range->start < behind || range->end <= range->start || range->end > text_len)
			return xk_refuse(error, -EINVAL,
					 "%s: range 0x%x..0x%x is empty, not in order, or outside",
					 scope->place.symbol, range->start, range->end);
		behind = range->end;
	}
	return 0;
}

static int copy_ranges(struct xk_live_scope *scope, const struct xk_request *request,
		       const struct xk_scope *from, unsigned int index, struct xk_error *error)
{
	const size_t size = array_size(from->nr_ranges, sizeof(*scope->ranges));
	const void *ranges = xk_request_at(request, from->ranges, size);

	if (!ranges)
		return xk_refuse(error, -EINVAL, "scope %u: ranges are not in the table", index);
	scope->ranges = kvmalloc(size, GFP_KERNEL);
	if (!scope->ranges)
		return -ENOMEM;
	memcpy(scope->ranges, ranges, size);
	scope->nr_ranges = from->nr_ranges;
	return 0;
}

int xk_scope_init(struct xk_tune *tune, unsigned int index,
		  const struct xk_request *request, struct xk_error *error)
{
	const struct xk_scope *from = &request->scopes[index];
	struct xk_live_scope *scope = &tune->scopes[index];
	struct xk_analysed *analysed;
	int ret;

	ret = xk_place_name(&scope->place, from->symbol, from->module, "scope", index, error);
	if (!ret)
		ret = check_idle(&scope->place, error);
	if (ret)
		return ret;
	if (!from->text_len || from->text_len > XK_MAX_TEXT ||
	    from->address + from->text_len < from->address)
		return xk_refuse(error, -EINVAL, "scope %u: %u bytes at %#llx", index,
				 from->text_len, from->address);
	if (!from->nr_ranges || from->nr_ranges > XK_MAX_RANGES)
		return xk_refuse(error, -EINVAL, "scope %u: %u ranges; 1 to %u are possible",
				 index, from->nr_ranges, XK_MAX_RANGES);
	ret = copy_ranges(scope, request, from, index, error);
	if (ret)
		return ret;
	analysed = xk_analysed_get(tune, request, from->text, from->mask, from->text_len);
	if (IS_ERR(analysed))
		return xk_refuse(error, PTR_ERR(analysed),
				 "scope %u: text or mask is not in the table", index);
	scope->place.analysed = analysed;
	scope->place.function = from->address;
	return check_ranges(scope, from->text_len, error);
}

void xk_scope_destroy(struct xk_live_scope *scope)
{
	xk_analysed_put(scope->place.analysed);
	kvfree(scope->ranges);
}

static int verify_scope(struct xk_live_scope *scope, const struct module *module,
			struct xk_error *error)
{
	u32 len = scope->place.analysed->len;
	u8 *view = kvmalloc(len, GFP_KERNEL);
	int ret;

	if (!view)
		return -ENOMEM;
	ret = xk_place_verify(&scope->place, module, scope->ranges[0].start, view, len, error);
	kvfree(view);
	if (!ret)
		scope->phase = XK_PHASE_READY;
	return ret;
}

static int verify_or_wait(struct xk_live_scope *scope, struct xk_error *error)
{
	const struct module *module = NULL;
	int ret;

	if (scope->place.module[0]) {
		module = xk_module_get(scope->place.module);
		if (!module) {
			scope->place.function = 0;
			scope->phase = XK_PHASE_WAITING;
			return 0;
		}
	}
	ret = verify_scope(scope, module, error);
	xk_module_put(module);
	return ret;
}

int xk_scopes_verify(struct xk_tune *tune, struct xk_error *error)
{
	unsigned int i;
	int ret;

	for (i = 0; i < tune->nr_scopes; i++) {
		struct xk_live_scope *scope = &tune->scopes[i];

		ret = verify_or_wait(scope, error);
		if (ret)
			return ret;
		/* vmlinux is not loaded again. */
		if (!scope->place.module[0]) {
			xk_analysed_put(scope->place.analysed);
			scope->place.analysed = NULL;
		}
	}
	return 0;
}

int xk_scopes_verify_module(struct xk_tune *tune, const struct module *module,
			    struct xk_error *error)
{
	unsigned int i;
	int ret;

	for (i = 0; i < tune->nr_scopes; i++) {
		struct xk_live_scope *scope = &tune->scopes[i];

		if (scope->phase != XK_PHASE_WAITING || strcmp(scope->place.module, module->name))
			continue;
		ret = verify_scope(scope, module, error);
		if (ret) {
			/*
			 * A notifier cannot refuse the module here, so later transitions are
			 * refused instead.
			 */
			scope->phase = XK_PHASE_BROKEN;
			if (!error->text[0])
				xk_refuse(error, ret, "no memory to verify the scopes in %s",
					  module->name);
			pr_warn("xk: %s: a scope in module %s is not verified: %s\n", tune->name,
				module->name, error->text);
			return ret;
		}
	}
	return 0;
}

void xk_scopes_await_module(struct xk_tune *tune, const struct module *module)
{
	unsigned int i;

	for (i = 0; i < tune->nr_scopes; i++) {
		struct xk_live_scope *scope = &tune->scopes[i];

		if (strcmp(scope->place.module, module->name))
			continue;
		scope->phase = XK_PHASE_WAITING;
		scope->place.function = 0;
	}
}
