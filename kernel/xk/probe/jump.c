// SPDX-License-Identifier: GPL-2.0-only
/*
 * Plans jumps: the window of a point is checked as that of a tune's detour. The analysis of the
 * whole image, in user space, found that no other function branches into it.
 *
 * The code of a jump is the relocated window, with a call of xk_probe_enter() before each point. A
 * slot begins with the address of its point, so it has one call. A window with several points has
 * as many slots, each of which continues in the next one.
 */
#include <linux/slab.h>
#include <linux/string.h>

#include "backend/guard.h"
#include "backend/probe_cache.h"
#include "core/conflict.h"
#include "model/backend.h"
#include "ops/emit.h"
#include "probe/jump.h"
#include "probe/relay.h"
#include "probe/run.h"
#include "probe/shield.h"
#include "text/changes_code.h"
#include "text/internal.h"
#include "text/slot.h"
#include "text/stub.h"

#define JMP 0xe9
#define CALL 0xe8
#define INT3 0xcc

const char *xk_jump_check_window(const struct xk_plan *plan, const struct xk_window *window)
{
	unsigned int i;

	for (i = 0; i < window->nr; i++)
		if (xk_may_fault(window->address + window->insns[i].offset))
			return "an access to memory that may fault";
	if (xk_function_enters(&plan->function, window))
		return "a branch leads into these instructions";
	if (xk_tunes_hold(window->address, window->address + window->len))
		return "a tune holds these instructions";
	if (xk_jump_overlaps(window->address, window->address + window->len))
		return "a detour of an earlier tune is still there";
	return xk_allowed_window(&plan->allowed, window);
}

/* Whether a branch of the window leads into the function. No kprobe may become a jump over it. */
static bool moves_branch(const struct xk_window *window, const struct xk_function *function)
{
	unsigned int i;

	for (i = 0; i < window->nr; i++)
		if ((window->insns[i].kind == XK_INSN_BRANCH ||
		     window->insns[i].kind == XK_INSN_JUMP) &&
		    window->insns[i].target - function->start < function->len)
			return true;
	return false;
}

static const char *measure(const struct xk_plan *plan, struct xk_jump *jump,
			   const struct xk_point *point, const struct xk_probe_place *place)
{
	unsigned long start = point->address - place->window_lead;
	unsigned long offset = start - plan->function.start;
	const char *why;

	if (!place->window)
		return "the analysis found no window";
	if (start < plan->function.start || !xk_function_begins(&plan->function, start))
		return "the window does not begin at an instruction of the function";
	why = xk_window_measure_least(&jump->window, plan->function.text + offset,
				      plan->function.len - offset, start, place->window_lead,
				      place->host_window ? XK_SHORT_JUMP_LEN : XK_JUMP_LEN,
				      xk_insn_decode);
	/* It may be shorter: the kernel patched an instruction of it when it booted. */
	if (!why && jump->window.len > place->window)
		why = "a jump is longer than the analysed window";
	return why ?: xk_jump_check_window(plan, &jump->window);
}

/* Returns the index of the instruction that begins at the address, or -1. */
static int instruction_at(const struct xk_window *window, unsigned long address)
{
	unsigned int i;

	for (i = 0; i < window->nr; i++)
		if (window->address + window->insns[i].offset == address &&
		    window->insns[i].kind != XK_INSN_PADDING)
			return i;
	return -1;
}

static struct xk_jump *jump_of(struct xk_claim *claim)
{
	return container_of(claim, struct xk_jump, claim);
}

static void add_point(struct xk_jump *jump, int at, struct xk_point *point,
		      struct list_head *jumps)
{
	jump->points[at] = point;
	point->jump = jump;
	if (list_empty(&jump->list))
		list_add_tail(&jump->list, jumps);
}

/* A jump covers the instruction: it must serve the point, since no kprobe could. */
static const char *join(struct xk_claim *claim, struct xk_point *point, struct list_head *jumps)
{
	struct xk_jump *jump = jump_of(claim);
	int at = instruction_at(&jump->window, point->address);

	if (at < 0)
		return "an instruction before it is probed by a jump over it";
	if (jump->retired)
		return "an earlier probe is still being removed";
	add_point(jump, at, point, jumps);
	return NULL;
}

/*
 * Kprobes take long to register a guard, or to refuse it. So the cache of their answers receives
 * the addresses before targets of branches where no jump of a kprobe may ever begin.
 */
static void note_targets(const struct xk_window *window, const struct xk_function *function)
{
	unsigned int i, k;

	for (i = 0; i < window->nr; i++) {
		unsigned long target = window->insns[i].target;
		u8 kind = window->insns[i].kind;

		if (kind != XK_INSN_BRANCH && kind != XK_INSN_JUMP)
			continue;
		for (k = 1; k < XK_JUMP_LEN; k++)
			if (target - k - function->start < function->len &&
			    !xk_function_jump_may_begin(function, target - k))
				xk_probe_cache_put(target - k, XK_PROBE_NO);
	}
}

static void claim(struct xk_jump *jump)
{
	jump->claim.address = jump->window.address;
	jump->claim.len = jump->window.len;
	memcpy(jump->claim.bytes, jump->window.bytes, sizeof(jump->claim.bytes));
	xk_claim_add(&jump->claim);
}

static void unguard(struct xk_jump *jump)
{
	xk_claim_remove(&jump->claim);
	xk_guards_destroy(jump->guards);
	if (xk_shield_put(jump->shield))
		xk_retired_soon();
}

const char *xk_jump_guard(const struct xk_plan *plan, struct xk_jump *jump)
{
	const char *why;

	/* First, so that no shield takes padding of the window. */
	claim(jump);
	if (moves_branch(&jump->window, &plan->function)) {
		jump->shield = xk_shield_get(&plan->function, &plan->allowed);
		if (!jump->shield)
			note_targets(&jump->window, &plan->function);
	}
	jump->guards = xk_guards_create(&jump->window, xk_shielded(jump->shield), &why);
	if (jump->guards)
		return NULL;
	unguard(jump);
	return why;
}

static const char *create(struct xk_plan *plan, struct xk_jump *jump, struct xk_point *point,
			  const struct xk_probe_place *place)
{
	const char *why = xk_jump_guard(plan, jump);

	if (why)
		return why;
	if (place->host_window)
		why = xk_relay_plan(plan, jump, point, place);
	if (why)
		unguard(jump);
	else
		add_point(jump, jump->window.site, point, &plan->jumps);
	return why;
}

void xk_jump_plan_again(struct xk_point *point, struct list_head *jumps)
{
	if (list_empty(&point->jump->list))
		list_add_tail(&point->jump->list, jumps);
}

const char *xk_jump_plan(struct xk_plan *plan, struct xk_point *point,
			 const struct xk_probe_place *place)
{
	struct xk_claim *claim = xk_claim_find(point->address, point->address + 1);
	const char *why = xk_slots_missing();
	struct xk_jump *jump;

	if (why)
		return why;
	if (claim && claim->is_shield)
		return "it is padding after the function";
	if (claim)
		return join(claim, point, &plan->jumps);
	jump = kzalloc(sizeof(*jump), GFP_KERNEL);
	if (!jump)
		return "no memory";
	INIT_LIST_HEAD(&jump->list);
	why = xk_changes_code(plan->function.name);
	if (!why)
		why = measure(plan, jump, point, place);
	if (!why && xk_claim_find(jump->window.address, jump->window.address + jump->window.len))
		why = "another probe's jump begins in the next instructions";
	if (!why)
		why = create(plan, jump, point, place);
	if (why)
		kfree(jump);
	return why;
}

void xk_jump_drop(struct xk_jump *jump)
{
	list_del(&jump->list);
	xk_relay_forget(jump);
	unguard(jump);
	kfree(jump);
}

static void begin_slot(struct xk_emitter *out, const struct xk_point *point)
{
	*out = (struct xk_emitter) { .base = 0 };
	xk_emit(out, &point, sizeof(point));
}

/* The slot is complete: nothing leads to it yet. */
static bool write_slot(struct xk_emitter *out)
{
	if (out->failed || out->len > XK_SLOT_LEN)
		return false;
	memset(out->code + out->len, INT3, XK_SLOT_LEN - out->len);
	xk_text_lock();
	xk_text_write(out->base, out->code, XK_SLOT_LEN);
	xk_text_unlock();
	return true;
}

static bool next_slot(struct xk_jump_code *code, struct xk_emitter *out,
		      const struct xk_point *point)
{
	unsigned long slot = xk_slot_get();

	if (!slot)
		return false;
	code->slots[code->nr++] = slot;
	begin_slot(out, point);
	out->base = slot;
	return true;
}

static void emit_instruction(struct xk_emitter *out, const struct xk_window *window,
			     unsigned int at)
{
	u8 bytes[XK_MAX_RELOCATED];
	unsigned int len = xk_relocate(window, at, bytes, xk_emit_here(out));

	if (!len)
		out->failed = true;
	xk_emit(out, bytes, len);
}

/* Returns NULL for a host that serves only its relay. */
static const struct xk_point *first_point(const struct xk_jump *jump)
{
	unsigned int i;

	for (i = 0; i < jump->window.nr; i++)
		if (jump->points[i])
			return jump->points[i];
	return NULL;
}

/* Goes on in another slot, which serves this point. */
static bool continue_in(struct xk_jump_code *code, struct xk_emitter *out,
			const struct xk_point *point)
{
	struct xk_emitter before = *out;

	if (!next_slot(code, out, point))
		return false;
	xk_emit_branch(&before, JMP, out->base + XK_SLOT_CODE);
	return write_slot(&before);
}

static unsigned long entry_for(const struct xk_point *point)
{
	return (unsigned long)(point->wants_all ? xk_probe_enter : xk_probe_enter_few);
}

static bool emit_code(struct xk_jump *jump, struct xk_jump_code *code, struct xk_emitter *out)
{
	const struct xk_window *window = &jump->window;
	bool called = false;
	unsigned int i;

	if (!next_slot(code, out, first_point(jump)))
		return false;
	for (i = 0; i < window->nr; i++) {
		if (jump->points[i]) {
			if (called && !continue_in(code, out, jump->points[i]))
				return false;
			xk_emit_branch(out, CALL, entry_for(jump->points[i]));
			called = true;
		}
		emit_instruction(out, window, i);
	}
	if (window->falls_through)
		xk_emit_branch(out, JMP, window->address + window->len);
	return write_slot(out);
}

void xk_jump_code_free(struct xk_jump_code *code)
{
	unsigned int i;

	for (i = 0; code && i < code->nr; i++)
		xk_slot_put(code->slots[i]);
	kfree(code);
}

bool xk_jump_build(struct xk_jump *jump)
{
	struct xk_jump_code *code = kzalloc(sizeof(*code), GFP_KERNEL);
	struct xk_emitter *out = kzalloc(sizeof(*out), GFP_KERNEL);
	bool done;

	done = code && out && emit_code(jump, code, out);
	kfree(out);
	if (done)
		jump->next = code;
	else
		xk_jump_code_free(code);
	jump->wanted = done;
	return done;
}
