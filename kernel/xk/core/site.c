// SPDX-License-Identifier: GPL-2.0-only
/*
 * One site of a tune: copied from user space with all checks, linked to the code that runs, and
 * described. sites.c arms it.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "core/analysed.h"
#include "core/site.h"
#include "core/table.h"
#include "model/backend.h"
#include "text/relocate.h"

#define MAX_INSN_LEN 15

static int check_ivs(const struct xk_site *from, unsigned int index, struct xk_error *error)
{
	unsigned int i;

	for (i = 0; i < from->nr_ivs; i++)
		if (!xk_iv_ok(&from->ivs[i]))
			return xk_refuse(error, -EINVAL,
					 "site %u: value %u: invalid form %u, by %lld",
					 index, i, from->ivs[i].form, from->ivs[i].by);
	return 0;
}

static int check_data(const struct xk_site *from, unsigned int index, struct xk_error *error)
{
	if (from->flags != XK_SITE_DATA || from->nr_ops || from->nr_ivs != 1 ||
	    from->nr_patches || from->text_len || from->when)
		return xk_refuse(error, -EINVAL,
				 "site %u: a site in data has exactly one value, no operations and no text",
				 index);
	if (!is_power_of_2(from->insn_len) || from->insn_len > sizeof(u64))
		return xk_refuse(error, -EINVAL,
				 "site %u: invalid width of a value: %u bytes", index,
				 from->insn_len);
	if (from->address + from->offset < from->address)
		return xk_refuse(error, -EINVAL,
				 "site %u: invalid address %#llx", index, from->address);
	return check_ivs(from, index, error);
}

static bool is_width(u8 bytes)
{
	return is_power_of_2(bytes) && bytes <= sizeof(u64);
}

/* The instruction lies between the first one of the site and the place where its update runs. */
static bool is_patch(const struct xk_patch *patch, const struct xk_site *from)
{
	u32 end = from->offset + (from->when == XK_BEFORE ? 0 : from->insn_len);

	return is_width(patch->size) && is_width(patch->width) && patch->size <= patch->width &&
	       patch->iv < from->nr_ivs && patch->insn_len <= MAX_INSN_LEN && patch->field &&
	       patch->field + patch->size <= patch->insn_len && patch->offset >= from->start &&
	       patch->offset < end && patch->insn_len <= end - patch->offset;
}

static int check_patches(const struct xk_site *from, unsigned int index,
			 struct xk_error *error)
{
	unsigned int i;

	if (from->nr_patches > XK_MAX_PATCHES)
		return xk_refuse(error, -EINVAL, "site %u: %u instructions to change", index,
				 from->nr_patches);
	for (i = 0; i < from->nr_patches; i++)
		if (!is_patch(&from->patches[i], from) ||
		    (i && from->patches[i].offset < from->patches[i - 1].offset +
						     from->patches[i - 1].insn_len))
			return xk_refuse(error, -EINVAL,
					 "site %u: no instruction at 0x%x holds %u byte(s) of a value",
					 index, from->patches[i].offset, from->patches[i].size);
	return 0;
}

static int check_code(const struct xk_site *from, unsigned int index, struct xk_error *error)
{
	const struct xk_ops_limits limits = {
		.nr_ivs = from->nr_ivs,
		.text_len = from->text_len,
		.stores = from->flags & XK_SITE_STORES,
	};
	struct xk_ops_error why;

	if (from->flags & ~XK_SITE_STORES)
		return xk_refuse(error, -EINVAL, "site %u: unknown flags %#x", index, from->flags);
	if (from->when > XK_INSTEAD)
		return xk_refuse(error, -EINVAL, "site %u: invalid `when`: %u", index, from->when);
	if (!from->text_len || from->text_len > XK_MAX_TEXT)
		return xk_refuse(error, -EINVAL, "site %u: invalid length of text: %u bytes", index,
				 from->text_len);
	if (!from->insn_len || from->insn_len > MAX_INSN_LEN ||
	    from->offset >= from->text_len ||
	    from->insn_len > from->text_len - from->offset)
		return xk_refuse(error, -EINVAL,
				 "site %u: %u bytes at 0x%x are not an instruction of %s", index,
				 from->insn_len, from->offset, from->symbol);
	if (from->start > from->offset)
		return xk_refuse(error, -EINVAL,
				 "site %u: its proof starts at 0x%x, after its probe", index,
				 from->start);
	if (from->address + from->text_len < from->address)
		return xk_refuse(error, -EINVAL,
				 "site %u: invalid address %#llx", index, from->address);
	if (from->window && (from->window < XK_JUMP_LEN || from->window > XK_MAX_WINDOW ||
			     from->window < from->window_lead + from->insn_len ||
			     from->window_lead > from->offset))
		return xk_refuse(error, -EINVAL,
				 "site %u: invalid window: %u bytes, %u of them before the site",
				 index, from->window, from->window_lead);
	if (xk_ops_check(from->ops, from->nr_ops, &limits, &why))
		return xk_refuse(error, -EINVAL, "site %u, operation %d: %s (%lld)",
				 index, why.op, why.what, why.value);
	return check_patches(from, index, error) ?: check_ivs(from, index, error);
}

static int check_description(const struct xk_site *from, unsigned int index,
			     struct xk_error *error)
{
	if (from->flags & XK_SITE_DATA)
		return check_data(from, index, error);
	return check_code(from, index, error);
}

/* Where the kernel patches itself, the instruction that would be probed or read is unknown. */
static int check_mask(const struct xk_live_site *site, struct xk_error *error)
{
	const u8 *mask = site->place.analysed->mask;
	unsigned int i;

	if (mask[site->offset] != 0xff)
		return xk_refuse(error, -EINVAL,
				 "%s+0x%x: the kernel patches this instruction itself",
				 site->place.symbol, site->offset);
	for (i = 0; i < site->nr_ops; i++) {
		const struct xk_op *op = &site->ops[i];

		/*
		 * The field itself is masked, because it is relocated; the byte before it must be
		 * compared.
		 */
		if (op->code == XK_OP_TEXT && (!op->imm || mask[op->imm - 1] != 0xff))
			return xk_refuse(error, -EINVAL,
					 "%s+0x%llx: XK_OP_TEXT reads from an instruction that is not compared",
					 site->place.symbol, op->imm);
	}
	return 0;
}

/* The number and the first byte of an instruction that is to change must be compared. */
static int check_patch_mask(const struct xk_live_site *site, struct xk_error *error)
{
	const u8 *mask = site->place.analysed->mask;
	unsigned int i, k;

	for (i = 0; i < site->nr_patches; i++) {
		const struct xk_patch *patch = &site->patches[i];
		bool compared = mask[patch->offset] == 0xff;

		for (k = 0; k < patch->size; k++)
			compared &= mask[patch->offset + patch->field + k] == 0xff;
		if (!compared)
			return xk_refuse(error, -EINVAL,
					 "%s+0x%x: the kernel patches this instruction itself",
					 site->place.symbol, patch->offset);
	}
	return 0;
}

/* Copies what verifying and arming the site needs, perhaps more than once. */
static int copy_source(struct xk_tune *tune, unsigned int index,
		       const struct xk_request *request, struct xk_error *error)
{
	const struct xk_site *from = &request->sites[index];
	struct xk_live_site *site = &tune->sites[index];
	struct xk_analysed *analysed;

	analysed = xk_analysed_get(tune, request, from->text, from->mask, from->text_len);
	if (IS_ERR(analysed))
		return xk_refuse(error, PTR_ERR(analysed),
				 "site %u: text or mask is not in the table", index);
	site->place.analysed = analysed;
	site->nr_ops = from->nr_ops;
	site->ops = kmemdup_array(from->ops, from->nr_ops, sizeof(*site->ops), GFP_KERNEL);
	if (!site->ops)
		return -ENOMEM;
	return check_mask(site, error) ?: check_patch_mask(site, error);
}

void xk_site_free_source(struct xk_live_site *site)
{
	xk_analysed_put(site->place.analysed);
	kfree(site->ops);
	site->place.analysed = NULL;
	site->ops = NULL;
}

static int init_code(struct xk_tune *tune, unsigned int index,
		     const struct xk_request *request, struct xk_error *error)
{
	const struct xk_site *from = &request->sites[index];
	struct xk_live_site *site = &tune->sites[index];
	int ret;

	site->window = from->window;
	site->window_lead = from->window_lead;
	site->reach = from->offset - from->start;
	ret = copy_source(tune, index, request, error);
	if (ret)
		return ret;
	site->counters = alloc_percpu(struct xk_counters);
	return site->counters ? 0 : -ENOMEM;
}

int xk_site_init(struct xk_tune *tune, unsigned int index,
		 const struct xk_request *request, struct xk_error *error)
{
	const struct xk_site *from = &request->sites[index];
	struct xk_live_site *site = &tune->sites[index];
	int ret;

	ret = xk_place_name(&site->place, from->symbol, from->module, "site", index, error);
	if (!ret)
		ret = check_description(from, index, error);
	if (ret)
		return ret;

	site->tune = tune;
	site->values = &tune->values;
	site->values_offset = offsetof(struct xk_values, sites) +
			      index * sizeof(struct xk_site_values);
	site->index = index;
	site->in_data = from->flags & XK_SITE_DATA;
	site->place.function = from->address;
	site->address = from->address + from->offset;
	site->offset = from->offset;
	site->insn_len = from->insn_len;
	site->when = from->when;
	site->nr_ivs = from->nr_ivs;
	memcpy(site->ivs, from->ivs, sizeof(site->ivs));
	site->nr_patches = from->nr_patches;
	memcpy(site->patches, from->patches, sizeof(site->patches));

	site->backend = site->in_data ? xk_backend_of_data() : xk_backend_fallback();

	return site->in_data ? 0 : init_code(tune, index, request, error);
}

/* Selects the first backend that the tune may use and that the site can use. */
static int choose_backend(struct xk_live_site *site, const u8 *text, u32 len,
			  struct xk_error *error)
{
	const struct xk_backend **at;
	const char *why;

	site->why_not = NULL;
	for (at = xk_backends; *at; at++) {
		const struct xk_backend *backend = *at;

		if (!backend->prepare || !xk_backend_wanted(backend, site->tune->load_flags))
			continue;
		memset(&site->private, 0, sizeof(site->private));
		site->backend = backend;
		why = backend->prepare(site, text, len);
		if (!why)
			return 0;
		site->why_not = why;
		if (site->tune->load_flags & backend->only)
			return xk_refuse(error, -EOPNOTSUPP, "%s+0x%x: no %s: %s",
					 site->place.symbol, site->offset, backend->name, why);
	}
	return xk_refuse(error, -EOPNOTSUPP, "%s+0x%x: %s", site->place.symbol, site->offset,
			 site->why_not);
}

int xk_site_fall_back(struct xk_live_site *site, struct xk_error *error)
{
	const char *why;

	lockdep_assert_held(&xk_lock);
	if (site->backend->destroy)
		site->backend->destroy(site);
	memset(&site->private, 0, sizeof(site->private));
	site->backend = xk_backend_fallback();
	error->text[0] = '\0';
	why = site->backend->prepare(site, NULL, 0);
	if (why)
		return xk_refuse(error, -EOPNOTSUPP, "%s+0x%x: %s", site->place.symbol,
				 site->offset, why);
	return 0;
}

int xk_site_link(struct xk_live_site *site, const u8 *text, u32 len, struct xk_error *error)
{
	memcpy(site->linked, site->ops, site->nr_ops * sizeof(*site->ops));
	memcpy(site->original, text + site->offset, XK_PATCH_LEN);
	xk_ops_link(site->linked, site->nr_ops, text, site->place.function);
	xk_native_build(&site->native, site->linked, site->nr_ops);
	xk_code_prepare(site);
	return choose_backend(site, text, len, error);
}

static void extent(const struct xk_live_site *site, unsigned long *start, unsigned long *end)
{
	*start = site->address;
	*end = site->address + site->insn_len;
	if (site->backend->extent)
		site->backend->extent(site, start, end);
}

unsigned long xk_site_start(const struct xk_live_site *site)
{
	unsigned long start, end;

	extent(site, &start, &end);
	return start;
}

unsigned long xk_site_end(const struct xk_live_site *site)
{
	unsigned long start, end;

	extent(site, &start, &end);
	return end;
}

void xk_site_destroy(struct xk_live_site *site)
{
	if (site->backend && site->backend->destroy)
		site->backend->destroy(site);
	xk_code_free(site);
	xk_site_free_source(site);
	free_percpu(site->counters);
}

static enum xk_armed_state site_state(const struct xk_live_site *site)
{
	if (site->phase != XK_PHASE_ARMED || !site->backend->state)
		return XK_STATE_DISARMED;
	return site->backend->state(site);
}

/* Returns the flags of the backend, and lets it fill `info`, which may be NULL. */
static u32 backend_flags(const struct xk_live_site *site, struct xk_site_info *info)
{
	return site->backend->describe ? site->backend->describe(site, info) : 0;
}

bool xk_site_ill(const struct xk_live_site *site)
{
	if (site->in_data && site->phase == XK_PHASE_ARMED)
		return backend_flags(site, NULL) & XK_SITE_DRIFTED;
	return site->phase != XK_PHASE_WAITING && site_state(site) == XK_STATE_DISARMED;
}

static void sum_counters(const struct xk_live_site *site, struct xk_site_info *info)
{
	int cpu;

	/* Sum faults first: with a hit in between, the difference does not become negative. */
	for_each_possible_cpu(cpu)
		info->faults += READ_ONCE(per_cpu_ptr(site->counters, cpu)->faults);
	for_each_possible_cpu(cpu)
		info->hits += READ_ONCE(per_cpu_ptr(site->counters, cpu)->hits);
	info->applied = info->hits - info->faults;
	info->missed = site->backend->missed ? site->backend->missed(site) : site->missed;
}

static u32 probe_flags(const struct xk_live_site *site)
{
	switch (site_state(site)) {
	case XK_STATE_BREAKPOINT:
		return XK_SITE_ARMED;
	case XK_STATE_JUMP:
		return XK_SITE_ARMED | XK_SITE_OPTIMISED;
	case XK_STATE_PATCHED:
		return XK_SITE_ARMED | XK_SITE_PATCH;
	case XK_STATE_UNKNOWN:
		return XK_SITE_OPT_UNKNOWN;
	default:
		return 0;
	}
}

void xk_site_describe(const struct xk_live_site *site, struct xk_site_info *info)
{
	info->address = site->address;
	strscpy(info->symbol, site->place.symbol);
	strscpy(info->module, site->place.module);
	info->offset = site->offset;

	info->flags = backend_flags(site, info);
	if (site->phase == XK_PHASE_WAITING)
		info->flags |= XK_SITE_WAITING;
	if (site->phase == XK_PHASE_BROKEN) {
		info->flags |= XK_SITE_BROKEN;
		strscpy(info->reason, site->reason);
	}
	if (site->in_data)
		return;
	info->flags |= probe_flags(site);
	sum_counters(site, info);
	if (site->why_not)
		strscpy(info->note, site->why_not);
}
