// SPDX-License-Identifier: GPL-2.0-only
/*
 * The patch backend: the instructions of a site hold the value themselves. They change in the stop
 * in which another value comes into force. The value costs nothing then, and no execution misses
 * it. The analysis proved what another number in an instruction means. This file checks that the
 * instruction is the analysed one, and that no one else uses it. poke.c describes how text changes;
 * guard.c, what happens to probes of others.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "backend/guard.h"
#include "backend/patch/patch.h"
#include "backend/window.h"
#include "core/conflict.h"
#include "model/tune.h"
#include "text/changes_code.h"
#include "text/int3.h"
#include "text/internal.h"

struct xk_live_patch *xk_patch_of(const struct xk_live_site *site)
{
	if (site->backend != &xk_backend_patch)
		return NULL;
	return (struct xk_live_patch *)site->private.words[0];
}

static void set_patch(struct xk_live_site *site, struct xk_live_patch *patch)
{
	site->private.words[0] = (unsigned long)patch;
}

static const char *check_instruction(const struct xk_live_site *site,
				     struct xk_patched *patched, const u8 *text)
{
	const struct xk_patch *what = &patched->what;
	u8 code[XK_COPY_LEN];
	const char *why;

	why = xk_insn_measure(&patched->window, text + what->offset,
			      site->place.analysed->len - what->offset,
			      site->place.function + what->offset, what->field, what->size,
			      xk_insn_decode);
	if (why)
		return why;
	if (patched->window.len != what->insn_len)
		return "the length of the instruction differs from the analysed one";
	if (xk_may_fault(patched->window.address))
		return "an access to memory that may fault";
	memcpy(patched->original, patched->window.bytes, patched->window.len);
	if (!xk_patch_compose(site, patched, site->tune->default_value, code) ||
	    memcmp(code, patched->original, patched->window.len))
		return "the instruction does not hold the default";
	if (site->tune->values &&
	    !xk_patch_compose(site, patched, site->tune->values->value, code))
		return "the instruction has no room for the value in force";
	return xk_branch_into(site, &patched->window, text);
}

static const char *guard_all(const struct xk_live_site *site, struct xk_live_patch *patch)
{
	unsigned long addresses[XK_MAX_PATCHES];
	const char *why;
	unsigned int i;

	for (i = 0; i < patch->nr; i++)
		addresses[i] = patch->at[i].window.address;
	patch->guards = xk_guards_of_numbers(site, addresses, patch->nr, &why);
	return why;
}

/* Instructions of all sites: one transition may change them all. */
static unsigned int nr_patched;

static const char *fill(struct xk_live_site *site, struct xk_live_patch *patch, const u8 *text)
{
	u8 code[XK_COPY_LEN];
	const char *why = xk_changes_code_at(site->place.function);

	if (why)
		return why;
	for (; patch->nr < site->nr_patches; patch->nr++) {
		struct xk_patched *patched = &patch->at[patch->nr];

		patched->what = site->patches[patch->nr];
		why = check_instruction(site, patched, text);
		if (why)
			return why;
	}
	if (!xk_choice_possible())
		return "the per-CPU memory of xk.ko is too far";
	if (nr_patched + patch->nr > xk_int3_capacity())
		return "this kernel cannot change more instructions at once";
	patch->stub = xk_stub_get(site);
	if (!patch->stub)
		return "all stubs are in use";
	nr_patched += patch->nr;
	if (!xk_copy_compose(&patch->at[0].window, code, xk_copy_address(patch, 0, XK_COPY_BEFORE)))
		return "the code is too far from xk.ko";
	if (xk_find_conflict(site, xk_sites_overlap))
		return "another site has one of these instructions";
	return guard_all(site, patch);
}

static void release(struct xk_live_site *site)
{
	struct xk_live_patch *patch = xk_patch_of(site);

	if (!patch)
		return;
	set_patch(site, NULL);
	xk_guards_destroy(patch->guards);
	if (patch->stub) {
		nr_patched -= patch->nr;
		xk_stub_put(patch->stub);
	}
	kfree(patch);
}

static const char *patch_prepare(struct xk_live_site *site, const u8 *text, u32 len)
{
	struct xk_live_patch *patch;
	const char *why;

	if (xk_internal_missing())
		return "this kernel lacks what patches need: see its log";
	if (!site->nr_patches)
		return "the table names no instruction that can hold the value";
	patch = kzalloc(sizeof(*patch), GFP_KERNEL);
	if (!patch)
		return "no memory";
	set_patch(site, patch);
	why = fill(site, patch, text);
	if (why)
		release(site);
	return why;
}

static void patch_extent(const struct xk_live_site *site, unsigned long *start,
			 unsigned long *end)
{
	if (!xk_patch_of(site))
		return;
	*start = site->address - site->reach;
	/*
	 * With XK_BEFORE the instructions that hold the value end before the instruction at the
	 * site.
	 */
	if (site->when == XK_BEFORE)
		*end = site->address;
}

static void patch_undo(const struct xk_live_site *site, u8 *view, unsigned long start, u32 len)
{
	const struct xk_live_patch *patch = xk_patch_of(site);
	unsigned int i, k;

	for (i = 0; patch && i < patch->nr; i++) {
		const struct xk_patched *patched = &patch->at[i];

		for (k = patched->what.field; k < patched->what.field + patched->what.size; k++)
			if (patched->window.address + k - start < len)
				view[patched->window.address + k - start] = patched->original[k];
	}
}

static int patch_accepts(const struct xk_tune *tune, s64 value, struct xk_error *error)
{
	unsigned int i, k;

	for (i = 0; i < tune->nr_sites; i++) {
		const struct xk_live_site *site = &tune->sites[i];

		if (!xk_patch_of(site) && !(tune->load_flags & XK_LOAD_PATCH_ONLY))
			continue;
		for (k = 0; k < site->nr_patches; k++) {
			const struct xk_patch *what = &site->patches[k];

			if (!xk_patch_has_room(what, xk_iv_apply(&site->ivs[what->iv], value)))
				return xk_refuse(error, -EOVERFLOW,
						 "%s: %s+0x%x has %u byte(s) for the value, too few for %lld: use another backend",
						 tune->name, site->place.symbol, what->offset,
						 what->size, value);
		}
	}
	return 0;
}

/*
 * Whether an instruction of `tune` that holds a value begins at `address`. It must be in the
 * function of `site`, or in a function whose address is known.
 */
static bool begins_in(const struct xk_tune *tune, const struct xk_live_site *site,
		      unsigned long address)
{
	unsigned int i, k;

	for (i = 0; i < tune->nr_sites; i++) {
		const struct xk_live_site *other = &tune->sites[i];
		unsigned long function = other->place.function;

		if (site && !strcmp(site->place.symbol, other->place.symbol) &&
		    !strcmp(site->place.module, other->place.module))
			function = site->place.function;
		else if (!xk_patch_of(other))
			continue;
		for (k = 0; k < other->nr_patches; k++)
			if (function + other->patches[k].offset == address)
				return true;
	}
	return false;
}

static bool patch_holds_value(const struct xk_live_site *site, unsigned long address)
{
	const struct xk_tune *tune;

	if (site && begins_in(site->tune, site, address))
		return true;
	list_for_each_entry(tune, &xk_tunes, list)
		if (begins_in(tune, NULL, address))
			return true;
	return false;
}

static bool patch_needs_stop(const struct xk_tune *tune, const struct xk_values *next)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++)
		if (xk_patch_of(&tune->sites[i]))
			return true;
	return false;
}

/* The instructions that hold a value, from the first of a site to the end of the last. */
static unsigned int patch_keep_clear(const struct xk_tune *tune, struct xk_addresses *to)
{
	unsigned int i, nr = 0;

	if (!xk_backend_wanted(&xk_backend_patch, tune->load_flags))
		return 0;
	if (!to)
		return tune->nr_sites;
	for (i = 0; i < tune->nr_sites; i++) {
		const struct xk_live_site *site = &tune->sites[i];

		if (xk_patch_of(site))
			to[nr++] = (struct xk_addresses){ site->address - site->reach,
							  site->address + site->insn_len };
	}
	return nr;
}

/* The default is in force, or the module is being removed. */
static void patch_disarm(struct xk_live_site **sites, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		release(sites[i]);
}

static enum xk_armed_state patch_state(const struct xk_live_site *site)
{
	const struct xk_live_patch *patch = xk_patch_of(site);

	if (!patch)
		return XK_STATE_DISARMED;
	return xk_patches_all(patch, xk_patch_in_force) ? XK_STATE_PATCHED : XK_STATE_UNKNOWN;
}

static u32 patch_describe(const struct xk_live_site *site, struct xk_site_info *info)
{
	return xk_patch_of(site) ? XK_SITE_UNCOUNTED : 0;
}

const struct xk_backend xk_backend_patch = {
	.name = "patch",
	.traits = XK_BACKEND_TEXT | XK_BACKEND_SHARED | XK_BACKEND_FLIP_LAST | XK_BACKEND_MUST_ARM,
	.flag = XK_LOAD_PATCH,
	.only = XK_LOAD_PATCH_ONLY,
	.prepare = patch_prepare,
	.arm = xk_patches_arm,
	.disarm = patch_disarm,
	.destroy = release,
	.state = patch_state,
	.describe = patch_describe,
	.extent = patch_extent,
	.undo = patch_undo,
	.holds_value = patch_holds_value,
	.accepts = patch_accepts,
	.keep_clear = patch_keep_clear,
	.needs_stop = patch_needs_stop,
	.change_text = xk_patches_change_text,
	.find_obstacle = xk_patches_find_obstacle,
	.changed = xk_patches_changed,
	.free_change = xk_patches_free,
	.flush = xk_guards_flush,
};
