/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What commands do to items. Who calls mc_do() has the lock of the key's shard, and has searched
 * for the item. No run is ended in it, nor in what it calls.
 */
#ifndef _XK_MEMCACHED_ITEMS_H
#define _XK_MEMCACHED_ITEMS_H

#include "owners.h"

/* The longest numbers of an item, and what else is in its reply. */
#define MC_REPLY	64

/* get, gets, gat, gats: adds an item to the reply. */
__noinline int mc_say_item(__u64 which)
{
	struct mc_item __heap *item = (struct mc_item __heap *)which;
	struct mc_work *work = mc_work();

	XK_USE_HEAP();
	if (!work || !mc_fits_reply(work, item->key_length + item->length + MC_REPLY))
		return 0;
	mc_say_bytes(work, SV_WORD("VALUE "), 6);
	mc_say_heap((__u64)item->data, item->key_length);
	mc_say_bytes(work, ' ', 1);
	mc_say_number(item->flags);
	mc_say_bytes(work, ' ', 1);
	mc_say_number(item->length);
	if (work->spec & MC_WITH_CAS) {
		mc_say_bytes(work, ' ', 1);
		mc_say_number(item->cas);
	}
	return mc_say_value(which);
}

/*
 * Makes a new item of the value of the request and, for append and prepend, the old one. Puts it in
 * the place of the old one; whether it did. Otherwise it says why.
 */
__noinline int mc_replace(void)
{
	struct mc_work *work = mc_work();
	__u64 length, more = 0, to, old = 0, made;
	struct mc_item __heap *item;

	XK_USE_HEAP();
	if (!work)
		return 0;
	length = work->length;
	/* So that it is not the one that goes. */
	if (work->item)
		mc_bump(work->shard, work->item);
	item = (struct mc_item __heap *)work->item;
	if (work->spec & MC_KEEPS) {
		work->numbers[0] = item->flags;
		work->exptime = item->exptime;
	}
	if (work->spec & (MC_APPENDS | MC_PREPENDS)) {
		more = item->length;
		old = (__u64)mc_value(item);
	}
	if (length + more > MC_VALUE) {
		if (!mc_is_foreign(work))
			mc_say(MC_TOO_LARGE);
		return 0;
	}
	made = mc_new(work, length + more);
	if (!made) {
		mc_say(MC_NO_MEMORY);
		return 0;
	}
	item = (struct mc_item __heap *)made;
	item->flags = work->numbers[0];
	item->exptime = work->exptime;
	to = (__u64)mc_value(item);
	/* The first one overwrites up to seven bytes behind it. */
	if (work->spec & MC_APPENDS)
		mc_copy(to, old, more);
	mc_fill(work->spec & MC_APPENDS ? to + more : to, work->value, length);
	if (work->spec & MC_PREPENDS)
		mc_copy(to + length, old, more);
	if (work->item)
		mc_unlink(work->shard, work->item);
	mc_link(work->shard, made);
	return 1;
}

/* set, add, replace, append, prepend, cas */
static __always_inline int mc_put(struct mc_work *work)
{
	int is_stored = mc_replace();

	((struct mc_shard __heap *)work->shard)->sets++;
	return is_stored ? mc_say(MC_STORED) : 0;
}

/* Writes the digits of a number, and spaces behind them, into a value. */
__noinline int mc_write_count(__u64 which, __u64 from, __u64 digits)
{
	struct mc_item __heap *item = (struct mc_item __heap *)which;
	volatile __u8 __heap *text = mc_value(item);
	struct mc_work *work = mc_work();
	__u64 at, length = item->length;

	XK_USE_HEAP();
	if (!work)
		return 0;
	sv_turns (at, MC_VALUE / 8) {
		if (8 * at >= length)
			break;
		*(volatile __u64 __heap *)(text + 8 * at) = ' ' * MC_ONES;
	}
	sv_turns (at, 20) {
		if (at >= digits)
			break;
		text[at] = work->in[(from + at) & MC_MASK];
	}
	return 0;
}

/* The value of the item as a number, into `number`; whether it is one. */
__noinline int mc_read_count(__u64 which)
{
	struct mc_item __heap *item = (struct mc_item __heap *)which;
	volatile __u64 __heap *words = (__u64 __heap *)mc_value(item);
	struct mc_work *work = mc_work();
	__u64 at;
	int found;

	XK_USE_HEAP();
	if (!work)
		return 0;
	sv_turns (at, MC_SLACK / 8)
		sv_store(&work->in[MC_COUNTED + 8 * at], words[at]);
	found = mc_number(MC_COUNTED, item->length);
	if (found & MC_NEGATIVE) {
		work->number = -work->number;
		return (__s64)work->number >= 0;
	}
	return found;
}

/* incr, decr. A number that is not longer than the value is written into it, as memcached does. */
__noinline int mc_count(void)
{
	struct mc_work *work = mc_work();
	struct mc_item __heap *item;
	__u64 number, delta, digits;

	XK_USE_HEAP();
	if (!work)
		return 0;
	if (!mc_read_count(work->item))
		return mc_say(MC_NO_NUMBER);
	number = work->number;
	delta = work->numbers[0];
	if (work->spec & MC_ADDS)
		number += delta;
	else
		number = number < delta ? 0 : number - delta;
	item = (struct mc_item __heap *)work->item;
	digits = mc_digits(number);
	if (digits >> 32 <= item->length) {
		mc_bump(work->shard, work->item);
		item->cas = mc_next_cas();
		mc_write_count(work->item, (__u32)digits, digits >> 32);
	} else {
		work->value = (__u32)digits;
		work->length = digits >> 32;
		if (!mc_replace())
			return 0;
	}
	if (work->quiet || !mc_fits_reply(work, 24))
		return 0;
	mc_say_number(number);
	mc_say_bytes(work, SV_WORD("\r\n"), 2);
	return 0;
}

/* What a command of one key does with the item that is there. */
static __always_inline int mc_change(struct mc_work *work)
{
	struct mc_item __heap *item = (struct mc_item __heap *)work->item;
	__u64 spec = work->spec;

	if (spec & MC_DELETES) {
		mc_unlink(work->shard, work->item);
		return mc_say(MC_DELETED);
	}
	if (spec & MC_TOUCHES) {
		item->exptime = work->exptime;
		mc_bump(work->shard, work->item);
		return mc_say(MC_TOUCHED);
	}
	if (spec & MC_ONLY_NEW) {
		mc_bump(work->shard, work->item);
		return mc_say(MC_NOT_STORED);
	}
	if (spec & MC_COMPARES && item->cas != work->numbers[3])
		return mc_say(MC_EXISTS);
	return spec & MC_COUNTS ? mc_count() : mc_put(work);
}

/* Does what the command says with the item of the key that was found, or without. */
__noinline int mc_do(void)
{
	struct mc_work *work = mc_work();
	struct mc_shard __heap *shard;
	struct mc_item __heap *item;
	__u64 spec;

	XK_USE_HEAP();
	if (!work)
		return 0;
	spec = work->spec;
	shard = (struct mc_shard __heap *)work->shard;
	item = (struct mc_item __heap *)work->item;
	if (item && mc_is_gone(work, item)) {
		mc_unlink(work->shard, work->item);
		work->item = 0;
	}
	if (mc_is_elsewhere(work))
		return 0;
	if (spec & MC_GETS) {
		shard->gets++;
		if (!work->item)
			return 0;
		shard->hits++;
		mc_say_item(work->item);
		if (spec & MC_TOUCHES)
			item->exptime = work->exptime;
		return mc_bump(work->shard, work->item);
	}
	if (work->item)
		return mc_change(work);
	if (spec & MC_CREATES)
		return mc_put(work);
	return mc_say(spec & MC_STORES && !(spec & MC_COMPARES) ? MC_NOT_STORED : MC_NOT_FOUND);
}

/* Does one thing with one key, alone in its shard. */
static __always_inline void mc_item(struct mc_work *work)
{
	struct mc_shard __heap *shard;

	work->shard = mc_shard(work->hash);
	if (!work->shard) {
		mc_say(MC_NO_MEMORY);
		return;
	}
	shard = (struct mc_shard __heap *)work->shard;
	xk_lock(&shard->lock);
	mc_find(work, work->shard);
	mc_do();
	xk_unlock(&shard->lock);
}

#endif
