// SPDX-License-Identifier: GPL-2.0-only
/*
 * The patch backend: the instructions of a site hold the value themselves, and are
 * changed in the stop of the machine in which another one comes into force. They cost
 * nothing then, and nothing can be missed. What another number in an instruction means
 * was proved by the analysis; that the instruction is the one that it saw, and nobody
 * else's, is checked here. poke.c says how text changes, guard.c what becomes of others'
 * probes.
 */
#include <linux/bitops.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "backend.h"
#include "guard.h"
#include "internal.h"
#include "ops.h"
#include "patch.h"
#include "poke.h"
#include "stack.h"
#include "stubs.h"
#include "turn.h"
#include "xk.h"

#define INT3 0xcc

/* While somebody registers probes: 255 ms together. */
#define ARM_ATTEMPTS 8
#define ARM_INTERVAL_US 500

/* A stub holds two copies of every instruction, each with a jump behind it. */
#define COPY_LEN (XK_STUB_LEN / (2 * XK_MAX_PATCHES))
static_assert(XK_MAX_RELOCATED + XK_JUMP_LEN <= COPY_LEN);

enum copy {
	COPY_BEFORE,
	COPY_AFTER,
};

static unsigned long copy_address(const struct xk_live_patch *patch, unsigned int index,
				  enum copy which)
{
	return xk_stub_address(patch->stub) + (2 * index + which) * COPY_LEN;
}

/* The number in the instruction would mean this value. */
static bool has_room(const struct xk_patch *what, u64 iv)
{
	return !((iv ^ sign_extend64(iv, 8 * what->size - 1)) & xk_width_mask(what->width));
}

/* The instruction for `value`. */
static bool compose(const struct xk_live_site *site, const struct xk_patched *patched,
		    s64 value, u8 *bytes)
{
	u64 iv = xk_iv_apply(&site->ivs[patched->what.iv], value);
	struct insn insn;

	memcpy(bytes, patched->original, patched->window.len);
	memcpy(bytes + patched->what.field, &iv, patched->what.size);
	return has_room(&patched->what, iv) &&
	       !xk_insn_decode(&insn, bytes, patched->window.len) &&
	       insn.length == patched->window.len;
}

static bool compose_copy(const struct xk_window *window, u8 *code, unsigned long address)
{
	unsigned int len = xk_relocate(window, 0, code, address);

	if (!len || !xk_write_jump(code + len, XK_JUMP_LEN, address + len,
				   window->address + window->len))
		return false;
	len += XK_JUMP_LEN;
	memset(code + len, INT3, COPY_LEN - len);
	return true;
}

/* Under the lock of text. Nobody runs it. */
static void write_copy(const struct xk_live_patch *patch, unsigned int index, enum copy which,
		       const u8 *bytes)
{
	unsigned long address = copy_address(patch, index, which);
	struct xk_window window = patch->at[index].window;
	u8 code[COPY_LEN];

	memcpy(window.bytes, bytes, window.len);
	if (compose_copy(&window, code, address) && memcmp((void *)address, code, COPY_LEN))
		xk_text_write(address, code, COPY_LEN);
}

static const char *check_instruction(const struct xk_live_site *site,
				     struct xk_patched *patched, const u8 *text)
{
	const struct xk_patch *what = &patched->what;
	u8 code[COPY_LEN];
	const char *why;

	why = xk_insn_measure(&patched->window, text + what->offset,
			      site->place.text->len - what->offset,
			      site->place.function + what->offset, what->field, what->size,
			      xk_insn_decode);
	if (why)
		return why;
	if (patched->window.len != what->insn_len)
		return "the analysis saw an instruction of another length";
	if (xk_may_fault(patched->window.address))
		return "an access to memory that may fault";
	memcpy(patched->original, patched->window.bytes, patched->window.len);
	if (!compose(site, patched, site->tune->default_value, code) ||
	    memcmp(code, patched->original, patched->window.len))
		return "the instruction does not hold the default";
	if (site->tune->values &&
	    !compose(site, patched, site->tune->values->value, code))
		return "the instruction has no room for the value in force";
	return xk_branch_into(site, &patched->window, text);
}

static bool patches_overlap(const struct xk_live_site *site, const struct xk_live_site *other)
{
	return xk_site_start(site) < xk_site_end(other) &&
	       xk_site_start(other) < xk_site_end(site);
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

static const char *fill(struct xk_live_site *site, struct xk_live_patch *patch, const u8 *text)
{
	u8 code[COPY_LEN];
	const char *why;

	for (; patch->nr < site->nr_patches; patch->nr++) {
		struct xk_patched *patched = &patch->at[patch->nr];

		patched->what = site->patches[patch->nr];
		why = check_instruction(site, patched, text);
		if (why)
			return why;
	}
	patch->stub = xk_stub_get(site);
	if (!patch->stub)
		return "all stubs are in use";
	if (!compose_copy(&patch->at[0].window, code, copy_address(patch, 0, COPY_BEFORE)))
		return "the code is too far from xk.ko";
	if (xk_holder(site, patches_overlap))
		return "another site has one of these instructions";
	return guard_all(site, patch);
}

static void release(struct xk_live_site *site)
{
	struct xk_live_patch *patch = site->patch;

	if (!patch)
		return;
	site->patch = NULL;
	xk_guards_destroy(patch->guards);
	if (patch->stub)
		xk_stub_put(patch->stub);
	kfree(patch);
}

const char *xk_patch_prepare(struct xk_live_site *site, const u8 *text, u32 len)
{
	const char *why;

	if (xk_internal_missing())
		return "this kernel lacks what patches need";
	if (!site->nr_patches)
		return "the analysis knows no instruction that could hold the value";
	site->patch = kzalloc(sizeof(*site->patch), GFP_KERNEL);
	if (!site->patch)
		return "no memory";
	why = fill(site, site->patch, text);
	if (why)
		release(site);
	return why;
}

void xk_patch_undo(const struct xk_live_patch *patch, u8 *view, unsigned long start, u32 len)
{
	unsigned int i, k;

	for (i = 0; i < patch->nr; i++) {
		const struct xk_patched *patched = &patch->at[i];

		for (k = patched->what.field; k < patched->what.field + patched->what.size; k++)
			if (patched->window.address + k - start < len)
				view[patched->window.address + k - start] = patched->original[k];
	}
}

int xk_patch_accepts(const struct xk_tune *tune, s64 value, struct xk_error *error)
{
	unsigned int i, k;

	for (i = 0; i < tune->nr_sites; i++) {
		const struct xk_live_site *site = &tune->sites[i];

		if (!site->patch && !tune->patches_only)
			continue;
		for (k = 0; k < site->nr_patches; k++) {
			const struct xk_patch *what = &site->patches[k];

			if (!has_room(what, xk_iv_apply(&site->ivs[what->iv], value)))
				return xk_refuse(error, -EOVERFLOW,
						 "%s: %s+0x%x has %u byte(s) for the value, too few for %lld: take another backend",
						 tune->name, site->place.symbol, what->offset,
						 what->size, value);
		}
	}
	return 0;
}

/* Of `tune`, in a function that `site` is in or that is known. */
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
		else if (!other->patch)
			continue;
		for (k = 0; k < other->nr_patches; k++)
			if (function + other->patches[k].offset == address)
				return true;
	}
	return false;
}

bool xk_patch_begins(const struct xk_live_site *site, unsigned long address)
{
	const struct xk_tune *tune;

	if (site && begins_in(site->tune, site, address))
		return true;
	list_for_each_entry(tune, &xk_tunes, list)
		if (begins_in(tune, NULL, address))
			return true;
	return false;
}

bool xk_is_patched(const struct xk_tune *tune)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++)
		if (tune->sites[i].patch)
			return true;
	return false;
}

static struct xk_patches *create_patches(unsigned int nr_sites)
{
	unsigned int capacity = nr_sites * XK_MAX_PATCHES;
	struct xk_patches *patches = kvzalloc(struct_size(patches, at, capacity), GFP_KERNEL);

	if (!patches)
		return NULL;
	patches->pokes = xk_pokes_create(capacity);
	if (!patches->pokes) {
		kvfree(patches);
		return NULL;
	}
	patches->pokes->nr = 0;
	return patches;
}

void xk_patches_free(struct xk_patches *patches)
{
	if (IS_ERR_OR_NULL(patches))
		return;
	kvfree(patches->pokes);
	kvfree(patches);
}

/* What changes when a site goes to `value`; its copies are written. Under the lock of text. */
static bool add_patches_of(struct xk_patches *patches, const struct xk_live_site *site, s64 value)
{
	struct xk_live_patch *patch = site->patch;
	unsigned int i;

	for (i = 0; i < patch->nr; i++) {
		struct xk_patched *patched = &patch->at[i];
		struct xk_poke *poke = &patches->pokes->at[patches->pokes->nr];

		if (!compose(site, patched, value, poke->bytes))
			return false;
		if (!memcmp(poke->bytes, patched->window.bytes, patched->window.len))
			continue;
		poke->address = patched->window.address;
		poke->len = patched->window.len;
		poke->before = copy_address(patch, i, COPY_BEFORE);
		poke->meanwhile = copy_address(patch, i, COPY_AFTER);
		write_copy(patch, i, COPY_BEFORE, patched->window.bytes);
		write_copy(patch, i, COPY_AFTER, poke->bytes);
		patches->pokes->nr++;
		patches->at[patches->nr++] = patched;
	}
	return true;
}

static bool add_tune(struct xk_patches *patches, const struct xk_tune *tune, s64 value)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++)
		if (tune->sites[i].patch && tune->sites[i].phase == XK_PHASE_ARMED &&
		    !add_patches_of(patches, &tune->sites[i], value))
			return false;
	return true;
}

struct xk_patches *xk_patches_create(const struct xk_turn *turn)
{
	struct xk_patches *patches;
	unsigned int i, sites = 0;
	bool added = true;

	if (turn->phase == XK_TURN_SETTLING)
		return NULL;
	for (i = 0; i < turn->nr; i++)
		if (turn->parts[i].tune->patches)
			sites += turn->parts[i].tune->nr_sites;
	if (!sites)
		return NULL;
	patches = create_patches(sites);
	if (!patches)
		return ERR_PTR(-ENOMEM);
	xk_text_lock();
	for (i = 0; i < turn->nr && added; i++)
		added = add_tune(patches, turn->parts[i].tune, turn->parts[i].other->value);
	xk_text_unlock();
	if (added && patches->nr)
		return patches;
	xk_patches_free(patches);
	return added ? NULL : ERR_PTR(-EOVERFLOW);
}

/* Nobody else has changed it; a probe there may have a breakpoint in it. */
static bool is_in_force(const struct xk_patched *patched)
{
	const struct xk_window *window = &patched->window;
	u8 running[XK_MAX_WINDOW];

	if (copy_from_kernel_nofault(running, (void *)window->address, window->len) ||
	    memcmp(running + 1, window->bytes + 1, window->len - 1))
		return false;
	return running[0] == window->bytes[0] ||
	       (running[0] == INT3 && xk_is_probed(window->address));
}

/* Likewise, and nobody has a copy of it. */
static bool may_change(const struct xk_patched *patched)
{
	return is_in_force(patched) && xk_number_is_free(patched->window.address);
}

const struct xk_patched *xk_patches_find_other(struct xk_patches *patches)
{
	unsigned int i;

	for (i = 0; i < patches->nr; i++)
		if (!may_change(patches->at[i]))
			return patches->at[i];
	return NULL;
}

void xk_patches_make(struct xk_patches *patches, u64 epoch)
{
	patches->pokes->epoch = epoch;
	xk_pokes_make(patches->pokes);
}

void xk_patches_made(struct xk_patches *patches)
{
	unsigned int i;

	for (i = 0; i < patches->nr; i++) {
		struct xk_patched *patched = patches->at[i];
		unsigned int field = patched->what.field;

		memcpy(patched->window.bytes + field, patches->pokes->at[i].bytes + field,
		       patched->what.size);
	}
}

static int patch_prepare(struct xk_live_site *site, struct xk_error *error)
{
	return 0;
}

static bool all_are(const struct xk_live_patch *patch,
		    bool (*state)(const struct xk_patched *patched))
{
	bool all = true;
	unsigned int i;

	preempt_disable();
	for (i = 0; i < patch->nr; i++)
		all &= state(&patch->at[i]);
	preempt_enable();
	return all;
}

/* A value that is written into instructions of a module that has come. */
struct arming {
	struct xk_patches *patches;
	struct xk_outside *outside;	/* when threads were looked at before the stop */
	bool registers;			/* a thread registers a probe, or may */
};

static bool registers(const struct xk_frame *frame, void *unused)
{
	return xk_is_registering(frame->address);
}

static const struct xk_look registering = { .stands = registers };

static void look_for_registering(struct task_struct *task, void *data)
{
	struct arming *arming = data;
	struct xk_blocker seen;

	if (xk_has_stack(task) && !xk_is_outside(arming->outside, task))
		arming->registers |= xk_stack_look_stopped(task, &registering, &seen);
}

/* In a stop. Who registers a probe may have copied an instruction with the number before. */
static bool may_arm(void *data)
{
	struct arming *arming = data;

	arming->registers = false;
	if (!xk_visit_threads(look_for_registering, arming))
		arming->registers = true;
	return !arming->registers && !xk_patches_find_other(arming->patches);
}

static bool stop_to_arm(struct xk_patches *patches)
{
	struct arming arming = { .patches = patches };
	unsigned int attempt;
	bool made = false;

	for (attempt = 0; attempt < ARM_ATTEMPTS; attempt++) {
		if (attempt)
			usleep_range(ARM_INTERVAL_US << attempt, ARM_INTERVAL_US << (attempt + 1));
		arming.outside = xk_look_at_all(&registering, arming.outside, NULL, NULL);
		made = xk_poke_stopped(patches->pokes, may_arm, &arming);
		if (!arming.registers)
			break;
	}
	xk_outside_free(arming.outside);
	return made;
}

/*
 * Nobody runs this code yet, or it holds the value in force already. False: nothing has
 * changed. A probe that comes behind the stop has a copy of what was written.
 */
static bool write_value(struct xk_patches *patches, struct xk_live_site *site)
{
	bool added;

	xk_text_lock();
	added = add_patches_of(patches, site, site->tune->values->value);
	xk_text_unlock();
	if (!added)
		return false;
	if (!patches->nr)
		return all_are(site->patch, may_change);
	if (!stop_to_arm(patches))
		return false;
	xk_patches_made(patches);
	return true;
}

static int arm_site(struct xk_live_site *site, struct xk_error *error)
{
	struct xk_patches *patches = create_patches(1);
	bool written;

	if (!patches)
		return -ENOMEM;
	written = write_value(patches, site);
	xk_patches_free(patches);
	if (!written)
		return xk_refuse(error, -EBUSY,
				 "%s+0x%x: others changed or probe these instructions",
				 site->place.symbol, site->offset);
	site->phase = XK_PHASE_ARMED;
	return 0;
}

static int patch_arm(struct xk_live_site **sites, unsigned int nr, struct xk_error *error)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < nr && !ret; i++)
		ret = arm_site(sites[i], error);
	return ret;
}

/* The default is in force, or the code goes. */
static void patch_disarm(struct xk_live_site **sites, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		release(sites[i]);
}

static enum xk_armed_state patch_state(const struct xk_live_site *site)
{
	if (!site->patch)
		return XK_STATE_DISARMED;
	return all_are(site->patch, is_in_force) ? XK_STATE_PATCHED : XK_STATE_UNKNOWN;
}

static u64 patch_missed(const struct xk_live_site *site)
{
	return site->missed;
}

const struct xk_backend xk_backend_patch = {
	.prepare = patch_prepare,
	.arm = patch_arm,
	.disarm = patch_disarm,
	.destroy = release,
	.state = patch_state,
	.missed = patch_missed,
};
