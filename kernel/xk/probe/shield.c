// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kprobes optimise a probe into a jump over five bytes if no branch of the function leads into
 * them. To find out, they decode the function up to the next symbol, and do not optimise it if an
 * instruction cannot be decoded (can_optimize() in arch/x86/kernel/kprobes/opt.c). They do not see
 * a branch that was moved to a slot. So a shield replaces padding after the end of the code with
 * bytes that the kernel's decoder refuses. Nothing executes them. Probes in the function work as
 * before, as breakpoints: for these, kprobes decode the function up to the probe only.
 *
 * A shield must be in force as long as a thread may execute a moved branch. So it is written in the
 * same stop as the first jump that needs it, and removed after the grace period of the last one.
 */
#include <linux/bitops.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "base/lock.h"
#include "core/conflict.h"
#include "probe/allowed.h"
#include "probe/function.h"
#include "probe/probe.h"
#include "probe/shield.h"
#include "text/poke.h"
#include "text/stub.h"
#include "text/symbol.h"

#define INT3 0xcc
#define NOP 0x90
/* A kprobe that begins this many bytes before the shield could be a jump into it. */
#define REACH (XK_JUMP_LEN - 1)

/* andn without its VEX prefix, which the instruction must have. */
static const u8 whole[] = { 0x0f, 0x38, 0xf2 };
/* A VEX prefix of a table of opcodes that does not exist, with the no-ops of the next symbol. */
static const u8 prefix[] = { 0xc4, NOP, NOP, NOP };

#define NR_NOPS (sizeof(prefix) - 1)

/* Written shields that no jump needs. */
static LIST_HEAD(unneeded);

/* Asks the decoder that kprobes use, whatever follows. */
static bool decoder_refuses(const u8 *start, size_t len)
{
	static const u8 fill[] = { INT3, NOP, 0x00, 0xff };
	u8 bytes[MAX_INSN_SIZE];
	struct insn insn;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fill); i++) {
		memset(bytes, fill[i], sizeof(bytes));
		memcpy(bytes, start, len);
		if (xk_insn_decode(&insn, bytes, sizeof(bytes)) >= 0)
			return false;
	}
	return true;
}

static struct xk_shield *shield_of(struct xk_claim *claim)
{
	return container_of(claim, struct xk_shield, claim);
}

/* Whether the next symbol is the room before a function, and begins with no-ops. */
static bool room_follows(const struct xk_function *function)
{
	char *text = kmalloc(KSYM_SYMBOL_LEN, GFP_KERNEL);
	unsigned long end = function->start + function->len;
	struct xk_symbol symbol;
	bool follows;

	follows = text && xk_symbol_at(end, text, &symbol) && !symbol.offset &&
		  strstarts(symbol.name, "__pfx_") && xk_text_is(end, prefix + 1, NR_NOPS);
	kfree(text);
	return follows;
}

/* Takes whole instructions of the padding, from its end on. */
static bool take(const struct xk_function *function, struct xk_claim *claim, unsigned int least)
{
	u32 padding = xk_function_padding(function), start = function->len;

	while (function->len - start < least) {
		start = find_last_bit(function->begins, start);
		if (start < padding || start >= function->len)
			return false;
	}
	claim->address = function->start + start;
	claim->len = function->len - start;
	if (claim->len > sizeof(claim->bytes))
		return false;
	memcpy(claim->bytes, function->text + start, claim->len);
	return true;
}

/* The no-ops belong to the claim, so nobody else changes them. */
static bool take_with_room(const struct xk_function *function, struct xk_claim *claim)
{
	if (!take(function, claim, 1) || claim->len > sizeof(claim->bytes) - NR_NOPS ||
	    !room_follows(function))
		return false;
	memcpy(claim->bytes + claim->len, prefix + 1, NR_NOPS);
	claim->len += NR_NOPS;
	return true;
}

/* Chooses the shield of the function. Returns its last bytes, or NULL if there is no room. */
static const u8 *find_room(const struct xk_function *function, struct xk_claim *claim, u8 *len)
{
	*len = sizeof(whole);
	if (take(function, claim, sizeof(whole)))
		return whole;
	*len = sizeof(prefix);
	return take_with_room(function, claim) ? prefix : NULL;
}

/* Whether nobody else changes these bytes. */
static bool is_free(const struct xk_allowed *allowed, const struct xk_claim *claim)
{
	unsigned long end = claim->address + claim->len;

	return allowed->known && !xk_allowed_bytes(allowed, claim->address, end) &&
	       !xk_tunes_hold(claim->address, end) && !xk_jump_overlaps(claim->address, end) &&
	       !xk_claim_find(claim->address, end);
}

static struct xk_shield *create(const struct xk_function *function, const struct xk_claim *room,
				const u8 *last, u8 len)
{
	struct xk_shield *shield;

	if (!decoder_refuses(last, len))
		return NULL;
	shield = kzalloc(sizeof(*shield), GFP_KERNEL);
	if (!shield)
		return NULL;
	INIT_LIST_HEAD(&shield->list);
	shield->claim = *room;
	shield->claim.is_shield = true;
	memset(shield->bytes, INT3, room->len);
	memcpy(shield->bytes + room->len - len, last, len);
	shield->function.start = function->start;
	shield->function.end = function->start + function->len;
	xk_claim_add(&shield->claim);
	return shield;
}

struct xk_shield *xk_shield_get(const struct xk_function *function,
				const struct xk_allowed *allowed)
{
	struct xk_claim room = {}, *claim;
	struct xk_shield *shield;
	const u8 *last;
	u8 len;

	lockdep_assert_held(&xk_lock);
	last = find_room(function, &room, &len);
	if (!last)
		return NULL;
	claim = xk_claim_find(room.address, room.address + room.len);
	if (claim && claim->is_shield)
		shield = shield_of(claim);
	else if (is_free(allowed, &room))
		shield = create(function, &room, last, len);
	else
		shield = NULL;
	if (!shield)
		return NULL;
	shield->nr_jumps++;
	list_del_init(&shield->list);
	return shield;
}

static void free_shield(struct xk_shield *shield)
{
	list_del(&shield->list);
	xk_claim_remove(&shield->claim);
	kfree(shield);
}

bool xk_shield_put(struct xk_shield *shield)
{
	lockdep_assert_held(&xk_lock);
	if (!shield || --shield->nr_jumps)
		return false;
	if (shield->claim.written)
		list_add_tail(&shield->list, &unneeded);
	else
		free_shield(shield);
	return !list_empty(&unneeded);
}

/* Whether a kprobe is there, or its jump could come. */
static bool is_probed(const struct xk_claim *claim)
{
	unsigned long at;

	for (at = claim->address - REACH; at < claim->address + claim->len; at++)
		if (xk_is_probed(at))
			return true;
	return false;
}

static void add_poke(struct xk_pokes *pokes, const struct xk_claim *claim, const u8 *bytes)
{
	struct xk_poke *poke = &pokes->at[pokes->nr++];

	poke->address = claim->address;
	/* Nothing executes it. */
	poke->meanwhile = claim->address;
	poke->len = claim->len;
	memcpy(poke->bytes, bytes, claim->len);
}

bool xk_shield_write(struct xk_shield *shield, struct xk_pokes *pokes)
{
	struct xk_claim *claim = &shield->claim;

	if (claim->written)
		return true;
	if (!xk_text_is(claim->address, claim->bytes, claim->len) || is_probed(claim))
		return false;
	add_poke(pokes, claim, shield->bytes);
	claim->written = true;
	return true;
}

static bool is_intact(const struct xk_shield *shield)
{
	const struct xk_claim *claim = &shield->claim;

	return xk_text_is(claim->address, shield->bytes, claim->len) && !is_probed(claim);
}

/* In a stop. */
static bool choose(void *data)
{
	struct xk_pokes *pokes = data;
	struct xk_shield *shield;

	pokes->nr = 0;
	list_for_each_entry(shield, &unneeded, list) {
		if (pokes->nr == XK_JUMPS_PER_STOP)
			break;
		if (!shield->claim.written || !is_intact(shield))
			continue;
		add_poke(pokes, &shield->claim, shield->claim.bytes);
		shield->claim.written = false;
	}
	return pokes->nr;
}

bool xk_shields_remove(void)
{
	struct xk_shield *shield, *next;
	struct xk_pokes *pokes;
	bool more = true;

	lockdep_assert_held(&xk_lock);
	if (list_empty(&unneeded))
		return true;
	pokes = xk_pokes_create(XK_JUMPS_PER_STOP);
	while (pokes && more) {
		xk_probes_lock();
		more = xk_poke_stopped(pokes, choose, pokes);
		xk_probes_unlock();
		list_for_each_entry_safe(shield, next, &unneeded, list)
			if (!shield->claim.written)
				free_shield(shield);
	}
	kvfree(pokes);
	return list_empty(&unneeded);
}

void xk_shields_forget(const struct module *module)
{
	struct xk_shield *shield, *next;

	lockdep_assert_held(&xk_lock);
	list_for_each_entry_safe(shield, next, &unneeded, list)
		if (within_module(shield->claim.address, module))
			free_shield(shield);
}
