// SPDX-License-Identifier: GPL-2.0-only
/*
 * Plans jumps: the window of a point is checked as that of a tune's detour. The analysis of the
 * whole image, in user space, found that no other function branches into it.
 *
 * The code of a jump is the relocated window, with a call of xk_probe_enter() before each point. A
 * slot begins with the address of its point, so it has one call. A window with several points has
 * as many slots, each of which continues in the next one.
 *
 * Kprobes optimise a probe into a jump if no branch of the function leads into that jump. They do
 * not see a branch that was moved to a slot. The guard probes of backend/guard.c prevent this, but
 * take long to register. So where the window has room, it ends in a tail that nothing executes: for
 * each branch that was moved, a jump to the same target, which kprobes see (can_optimize() in
 * arch/x86/kernel/kprobes/opt.c), and a breakpoint, which they do not copy. So no jump of a kprobe
 * in the tail reaches the instruction behind the window.
 */
#include <linux/slab.h>
#include <linux/string.h>

#include "backend/guard.h"
#include "backend/probe_cache.h"
#include "core/site.h"
#include "model/backend.h"
#include "ops/emit.h"
#include "probe/jump.h"
#include "probe/run.h"
#include "text/internal.h"
#include "text/slot.h"
#include "text/stub.h"

#define JMP 0xe9
#define JMP8 0xeb
#define JMP8_LEN 2
#define CALL 0xe8
#define INT3 0xcc

static bool holds_window(const struct xk_live_site *site, const struct xk_window *window)
{
	unsigned long end = window->address + window->len;
	unsigned int i;

	if (site->in_data || !site->address ||
	    (site->phase != XK_PHASE_ARMED && site->phase != XK_PHASE_READY))
		return false;
	for (i = 0; i < site->nr_patches; i++) {
		const struct xk_patch *patch = &site->patches[i];
		unsigned long start = site->place.function + patch->offset;

		if (start < end && window->address < start + patch->insn_len)
			return true;
	}
	return xk_site_start(site) < end && window->address < xk_site_end(site);
}

static bool tunes_hold(const struct xk_window *window)
{
	const struct xk_tune *tune;
	unsigned int i;

	list_for_each_entry(tune, &xk_tunes, list)
		for (i = 0; i < tune->nr_sites; i++)
			if (holds_window(&tune->sites[i], window))
				return true;
	return false;
}

static const char *check_window(const struct xk_plan *plan, const struct xk_window *window)
{
	unsigned int i;

	for (i = 0; i < window->nr; i++)
		if (xk_may_fault(window->address + window->insns[i].offset))
			return "an access to memory that may fault";
	if (xk_function_enters(&plan->function, window))
		return "a branch leads into these instructions";
	if (tunes_hold(window))
		return "a tune holds these instructions";
	for (i = 0; i < window->len; i++)
		if (xk_jump_covers(window->address + i))
			return "a detour of an earlier tune is still there";
	return xk_allowed_window(&plan->allowed, window);
}

/* The targets of the window's branches in the function, each once. Returns their number. */
static unsigned int find_targets(const struct xk_window *window,
				 const struct xk_function *function,
				 unsigned long targets[XK_MAX_WINDOW_INSNS])
{
	unsigned int i, k, nr = 0;

	for (i = 0; i < window->nr; i++) {
		unsigned long target = window->insns[i].target;
		u8 kind = window->insns[i].kind;

		if ((kind != XK_INSN_BRANCH && kind != XK_INSN_JUMP) ||
		    target - function->start >= function->len)
			continue;
		for (k = 0; k < nr && targets[k] != target; k++)
			;
		if (k == nr)
			targets[nr++] = target;
	}
	return nr;
}

/* Whether a jump in the tail before `end` may be short. */
static bool is_near(unsigned long target, unsigned long end)
{
	long distance = target - end;

	return distance >= S8_MIN + XK_MAX_WINDOW && distance <= S8_MAX - XK_MAX_WINDOW;
}

/* Returns the length of the tail; 0 if the window needs none. */
static unsigned int tail_length(const struct xk_window *window,
				const struct xk_function *function)
{
	unsigned long targets[XK_MAX_WINDOW_INSNS];
	unsigned int i, nr = find_targets(window, function, targets), len = 0;

	for (i = 0; i < nr; i++)
		len += is_near(targets[i], window->address + window->len) ? JMP8_LEN : XK_JUMP_LEN;
	return nr ? len + 1 : 0;
}

/* `tail` has room for a tail of this length, which is that of the window. */
static void write_tail(const struct xk_window *window, const struct xk_function *function,
		       u8 *tail, unsigned int len)
{
	unsigned long targets[XK_MAX_WINDOW_INSNS], end = window->address + window->len;
	unsigned long at = end - len;
	unsigned int i, nr = find_targets(window, function, targets);

	for (i = 0; i < nr; i++) {
		if (is_near(targets[i], end)) {
			*tail++ = JMP8;
			*tail++ = targets[i] - (at + JMP8_LEN);
			at += JMP8_LEN;
		} else {
			xk_write_jump(tail, XK_JUMP_LEN, at, targets[i]);
			tail += XK_JUMP_LEN;
			at += XK_JUMP_LEN;
		}
	}
	*tail = INT3;
}

static const char *measure_least(struct xk_window *window, const struct xk_point *point,
				 const struct xk_probe_place *place,
				 const struct xk_function *function, unsigned int least)
{
	unsigned long start = point->address - place->window_lead - function->start;
	const char *why;

	why = xk_window_measure_least(window, function->text + start, function->len - start,
				      function->start + start, place->window_lead, least,
				      xk_insn_decode);
	/* It may be shorter: the kernel patched an instruction of it when it booted. */
	if (!why && window->len > place->window)
		why = "a jump is longer than the analysed window";
	return why;
}

/* A longer window may have more branches, and need a longer tail. */
static bool find_room(const struct xk_plan *plan, struct xk_window *window,
		      const struct xk_point *point, const struct xk_probe_place *place)
{
	unsigned int tail = tail_length(window, &plan->function);

	while (window->len < XK_JUMP_LEN + tail) {
		if (measure_least(window, point, place, &plan->function, XK_JUMP_LEN + tail))
			return false;
		tail = tail_length(window, &plan->function);
	}
	return tail && !check_window(plan, window);
}

/* Leaves the window as it is if there is no room for a tail. */
static void add_tail(const struct xk_plan *plan, struct xk_jump *jump,
		     const struct xk_point *point, const struct xk_probe_place *place)
{
	const struct xk_function *function = &plan->function;
	struct xk_window longer = jump->window;

	if (!find_room(plan, &longer, point, place) ||
	    xk_claim_find(longer.address, longer.address + longer.len))
		return;
	jump->window = longer;
	jump->tail_len = tail_length(&longer, function);
	write_tail(&longer, function, jump->tail, jump->tail_len);
	jump->shielded.start = function->start;
	jump->shielded.end = function->start + function->len;
}

static const char *measure(const struct xk_plan *plan, struct xk_jump *jump,
			   const struct xk_point *point, const struct xk_probe_place *place)
{
	unsigned long start = point->address - place->window_lead;
	const char *why;

	if (!place->window)
		return "the analysis found no window";
	if (start < plan->function.start || !xk_function_begins(&plan->function, start))
		return "the window does not begin at an instruction of the function";
	why = measure_least(&jump->window, point, place, &plan->function, XK_JUMP_LEN);
	if (!why)
		why = check_window(plan, &jump->window);
	if (!why)
		add_tail(plan, jump, point, place);
	return why;
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
 * Kprobes take long to refuse a guard where no instruction begins. So the cache of their answers
 * receives what is known about the addresses before targets of branches.
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
			    !xk_function_begins(function, target - k))
				xk_probe_cache_put(target - k, XK_PROBE_NO);
	}
}

static const char *create(const struct xk_plan *plan, struct xk_jump *jump,
			  struct xk_point *point, struct list_head *jumps)
{
	const char *why;

	if (!jump->tail_len)
		note_targets(&jump->window, &plan->function);
	jump->guards = xk_guards_create(&jump->window, &jump->shielded, &why);
	if (!jump->guards)
		return why;
	jump->claim.address = jump->window.address;
	jump->claim.len = jump->window.len;
	memcpy(jump->claim.bytes, jump->window.bytes, sizeof(jump->claim.bytes));
	xk_claim_add(&jump->claim);
	add_point(jump, jump->window.site, point, jumps);
	return NULL;
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
	if (claim)
		return join(claim, point, &plan->jumps);
	jump = kzalloc(sizeof(*jump), GFP_KERNEL);
	if (!jump)
		return "no memory";
	INIT_LIST_HEAD(&jump->list);
	why = measure(plan, jump, point, place);
	if (!why && xk_claim_find(jump->window.address, jump->window.address + jump->window.len))
		why = "another probe's jump begins in the next instructions";
	if (!why)
		why = create(plan, jump, point, &plan->jumps);
	if (why)
		kfree(jump);
	return why;
}

void xk_jump_drop(struct xk_jump *jump)
{
	list_del(&jump->list);
	xk_claim_remove(&jump->claim);
	xk_guards_destroy(jump->guards);
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

static const struct xk_point *first_point(const struct xk_jump *jump)
{
	unsigned int i;

	for (i = 0; !jump->points[i]; i++)
		;
	return jump->points[i];
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
