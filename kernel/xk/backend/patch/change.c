// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of several instructions in one stop: for a transition, and for a module that is loaded.
 */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "backend/patch/patch.h"
#include "model/tune.h"
#include "text/internal.h"
#include "text/poke.h"

struct patches {
	struct xk_text_change change;
	unsigned int nr;
	struct xk_patched *at[];
};

static struct patches *to_patches(struct xk_text_change *change)
{
	return container_of(change, struct patches, change);
}

static struct patches *create_patches(unsigned int nr_sites)
{
	unsigned int capacity = nr_sites * XK_MAX_PATCHES;
	struct patches *patches = kvzalloc(struct_size(patches, at, capacity), GFP_KERNEL);

	if (!patches)
		return NULL;
	patches->change.pokes = xk_pokes_create(capacity);
	if (!patches->change.pokes) {
		kvfree(patches);
		return NULL;
	}
	patches->change.pokes->nr = 0;
	patches->change.backend = &xk_backend_patch;
	return patches;
}

void xk_patches_free(struct xk_text_change *change)
{
	kvfree(change->pokes);
	kvfree(to_patches(change));
}

/*
 * Adds the changes for `value` at a site, and writes the copies that NMIs execute meanwhile. Under
 * the text lock. Returns false if an instruction cannot hold the value.
 */
static bool add_patches_of(struct patches *patches, const struct xk_live_site *site, s64 value)
{
	struct xk_live_patch *patch = xk_patch_of(site);
	unsigned int i;

	for (i = 0; i < patch->nr; i++) {
		struct xk_patched *patched = &patch->at[i];
		struct xk_poke *poke = &patches->change.pokes->at[patches->change.pokes->nr];

		if (!xk_patch_compose(site, patched, value, poke->bytes))
			return false;
		if (!memcmp(poke->bytes, patched->window.bytes, patched->window.len))
			continue;
		poke->address = patched->window.address;
		poke->len = patched->window.len;
		poke->choice = xk_choice_address(patch, i);
		poke->meanwhile = xk_copy_address(patch, i, XK_COPY_AFTER);
		xk_choice_write(patch, i);
		xk_copy_write(patch, i, XK_COPY_BEFORE, patched->window.bytes);
		xk_copy_write(patch, i, XK_COPY_AFTER, poke->bytes);
		patches->change.pokes->nr++;
		patches->at[patches->nr++] = patched;
	}
	return true;
}

static bool add_tune(struct patches *patches, const struct xk_tune *tune, s64 value)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++)
		if (xk_patch_of(&tune->sites[i]) && tune->sites[i].phase == XK_PHASE_ARMED &&
		    !add_patches_of(patches, &tune->sites[i], value))
			return false;
	return true;
}

struct xk_text_change *xk_patches_change_text(struct xk_tune *const *tunes, unsigned int nr,
					      bool settling)
{
	struct patches *patches;
	unsigned int i, sites = 0;
	bool added = true;

	for (i = 0; i < nr && !settling; i++)
		if (xk_backend_wanted(&xk_backend_patch, tunes[i]->load_flags))
			sites += tunes[i]->nr_sites;
	if (!sites)
		return NULL;
	patches = create_patches(sites);
	if (!patches)
		return ERR_PTR(-ENOMEM);
	xk_text_lock();
	for (i = 0; i < nr && added; i++)
		added = add_tune(patches, tunes[i], tunes[i]->other->value);
	xk_text_unlock();
	if (added && patches->nr)
		return &patches->change;
	xk_patches_free(&patches->change);
	return added ? NULL : ERR_PTR(-EOVERFLOW);
}

/* In a stop, or if no one runs the code. */
static unsigned long find_obstacle(const struct patches *patches)
{
	unsigned int i;

	for (i = 0; i < patches->nr; i++)
		if (!xk_patch_may_change(patches->at[i]))
			return patches->at[i]->window.address;
	return 0;
}

unsigned long xk_patches_find_obstacle(const struct xk_text_change *change)
{
	return find_obstacle(container_of_const(change, struct patches, change));
}

static void note_made(struct patches *patches)
{
	unsigned int i;

	for (i = 0; i < patches->nr; i++) {
		struct xk_patched *patched = patches->at[i];
		unsigned int field = patched->what.field;

		memcpy(patched->window.bytes + field, patches->change.pokes->at[i].bytes + field,
		       patched->what.size);
	}
}

void xk_patches_changed(struct xk_text_change *change, struct xk_tune *const *tunes,
			unsigned int nr)
{
	note_made(to_patches(change));
}

static bool may_arm(void *data)
{
	return !find_obstacle(data);
}

/* A kprobe that is being registered may already have a copy with the old number. */
static bool stop_to_arm(struct patches *patches)
{
	bool made;

	xk_probes_lock();
	made = xk_poke_stopped(patches->change.pokes, may_arm, patches);
	xk_probes_unlock();
	return made;
}

/*
 * No one runs this code yet, or it already holds the value in force. Returns false if nothing has
 * changed. A probe that is registered after the stop has a copy of what was written.
 */
static bool write_value(struct patches *patches, struct xk_live_site *site)
{
	bool added;

	xk_text_lock();
	added = add_patches_of(patches, site, site->tune->values->value);
	xk_text_unlock();
	if (!added)
		return false;
	if (!patches->nr)
		return xk_patches_all(xk_patch_of(site), xk_patch_may_change);
	if (!stop_to_arm(patches))
		return false;
	note_made(patches);
	return true;
}

static int arm_site(struct xk_live_site *site, struct xk_error *error)
{
	struct patches *patches = create_patches(1);
	bool written;

	if (!patches)
		return -ENOMEM;
	written = write_value(patches, site);
	xk_patches_free(&patches->change);
	if (!written) {
		site->why_not = "arming failed";
		return xk_refuse(error, -EBUSY,
				 "%s+0x%x: something else changed or probes these instructions",
				 site->place.symbol, site->offset);
	}
	site->phase = XK_PHASE_ARMED;
	return 0;
}

int xk_patches_arm(struct xk_live_site **sites, unsigned int nr, struct xk_error *error)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < nr && !ret; i++)
		ret = arm_site(sites[i], error);
	return ret;
}
