// SPDX-License-Identifier: GPL-2.0-only
/*
 * Verification of a site: its function is the analysed one, and no other site holds its
 * instructions.
 */
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "core/conflict.h"
#include "core/site.h"
#include "core/verify.h"
#include "model/backend.h"
#include "text/claim.h"
#include "text/relocate.h"

/* Whether the sites belong to two tunes, and neither may use another backend than kprobes. */
static bool both_are_probes(const struct xk_live_site *site, const struct xk_live_site *other)
{
	const struct xk_tune *a = site->tune, *b = other->tune;

	return a != b && !((a->traits | b->traits) & XK_BACKEND_TEXT);
}

/*
 * An update before an instruction does not change that instruction. It may be the first one of
 * another proof, which holds for any state in which the code is entered.
 */
static unsigned long end_for(const struct xk_live_site *site, const struct xk_live_site *other)
{
	if (site->when == XK_BEFORE && both_are_probes(site, other))
		return site->address;
	return xk_site_end(site);
}

/*
 * The proof of an update assumes that no one else changes the state between its first instruction
 * and the probe. Within one tune, the analysis ensured that. Probes of different tunes must not lie
 * in that range of each other. They must not be at the same instruction either, because their order
 * is undefined.
 */
static bool disturbs(const struct xk_live_site *site, const struct xk_live_site *other)
{
	unsigned long start = xk_site_start(site), other_start = xk_site_start(other);

	if (site->tune != other->tune) {
		start = min(start, site->address - site->reach);
		other_start = min(other_start, other->address - other->reach);
		if (site->address == other->address)
			return true;
	}
	return start < end_for(other, site) && other_start < end_for(site, other);
}

static bool conflicts(const struct xk_live_site *site, const struct xk_live_site *other)
{
	return disturbs(site, other) &&
	       (site->tune != other->tune || xk_whens_collide(site->when, other->when));
}

bool xk_sites_overlap(const struct xk_live_site *site, const struct xk_live_site *other)
{
	return xk_site_start(site) < xk_site_end(other) &&
	       xk_site_start(other) < xk_site_end(site);
}

const struct xk_live_site *xk_find_conflict(const struct xk_live_site *site,
					    bool (*conflict)(const struct xk_live_site *site,
							     const struct xk_live_site *other))
{
	struct xk_tune *tune;
	unsigned int i;

	list_for_each_entry(tune, &xk_tunes, list) {
		for (i = 0; i < tune->nr_sites; i++) {
			const struct xk_live_site *other = &tune->sites[i];

			if (other != site && (other->phase == XK_PHASE_ARMED ||
					      other->phase == XK_PHASE_READY) &&
			    conflict(site, other))
				return other;
		}
	}
	return NULL;
}

static int verify_instructions_unowned(const struct xk_live_site *site, struct xk_error *error)
{
	const struct xk_live_site *holder = xk_find_conflict(site, conflicts);

	if (!holder)
		return 0;
	return xk_refuse(error, -EBUSY, "%s+0x%x: these instructions are held by %s (tune %u)",
			 site->place.symbol, site->offset, holder->tune->name,
			 holder->tune->id);
}

static bool has_claim(const struct xk_live_site *site, struct xk_error *error)
{
	unsigned long start = site->address - max_t(u32, site->reach, site->window_lead);
	unsigned long end = site->address - site->window_lead + site->window;
	const struct xk_claim *claim;
	unsigned int i;

	claim = xk_claim_find(start, max(end, xk_site_end(site)));
	for (i = 0; !claim && i < site->nr_patches; i++) {
		start = site->place.function + site->patches[i].offset;
		claim = xk_claim_find(start, start + site->patches[i].insn_len);
	}
	if (claim)
		xk_refuse(error, -EBUSY,
			  "%s+0x%x: these instructions are probed (xk probe list): detach that probe first",
			  site->place.symbol, (u32)(claim->address - site->place.function));
	return claim;
}

static int verify_code(struct xk_live_site *site, const struct module *module, u8 *view,
		       u32 len, struct xk_error *error)
{
	int ret;

	ret = xk_place_verify(&site->place, module, site->offset, view, len, error);
	if (ret)
		return ret;
	site->address = site->place.function + site->offset;
	ret = verify_instructions_unowned(site, error);
	if (ret)
		return ret;
	if (has_claim(site, error))
		return -EBUSY;
	return xk_site_link(site, view, len, error);
}

int xk_verify_site(struct xk_live_site *site, const struct module *module,
		   struct xk_error *error)
{
	u32 len;
	u8 *view;
	int ret;

	if (site->backend->verify)
		return site->backend->verify(site, module, error);
	len = max(site->place.analysed->len, site->offset + XK_MAX_WINDOW);
	view = kvmalloc(len, GFP_KERNEL);
	if (!view)
		return -ENOMEM;
	ret = verify_code(site, module, view, len, error);
	kvfree(view);
	return ret;
}

static bool holds(const struct xk_live_site *site, unsigned long start, unsigned long end)
{
	unsigned int i;

	if (site->in_data || !site->address ||
	    (site->phase != XK_PHASE_ARMED && site->phase != XK_PHASE_READY))
		return false;
	for (i = 0; i < site->nr_patches; i++) {
		const struct xk_patch *patch = &site->patches[i];
		unsigned long number = site->place.function + patch->offset;

		if (number < end && start < number + patch->insn_len)
			return true;
	}
	return xk_site_start(site) < end && start < xk_site_end(site);
}

bool xk_tunes_hold(unsigned long start, unsigned long end)
{
	const struct xk_tune *tune;
	unsigned int i;

	list_for_each_entry(tune, &xk_tunes, list)
		for (i = 0; i < tune->nr_sites; i++)
			if (holds(&tune->sites[i], start, end))
				return true;
	return false;
}
