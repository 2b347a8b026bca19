/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose a key is. All are those of the cache here, except some of TCP: a key is memcached's if an
 * item without a value says so. That item may go as any other one. Then there is nothing with the
 * key, whatever memcached still has of it: user space deletes or replaces that when the key becomes
 * memcached's again.
 */
#ifndef _XK_MEMCACHED_OWNERS_H
#define _XK_MEMCACHED_OWNERS_H

#include "commands.h"

/* Adds an item to the reply, behind its head. There is room. */
__noinline int mc_say_value(__u64 which)
{
	struct mc_item __heap *item = (struct mc_item __heap *)which;
	struct mc_work *work = mc_work();

	XK_USE_HEAP();
	if (!work)
		return 0;
	mc_say_bytes(work, SV_WORD("\r\n"), 2);
	mc_say_heap((__u64)mc_value(item), item->length);
	mc_say_bytes(work, SV_WORD("\r\n"), 2);
	return 0;
}

#ifdef MC_STREAM

/* xkclaim: makes the key memcached's, and says what was here. */
__noinline int mc_claim(void)
{
	struct mc_work *work = mc_work();
	struct mc_item __heap *item;
	__u64 made;

	XK_USE_HEAP();
	if (!work)
		return 0;
	item = (struct mc_item __heap *)work->item;
	if (work->item && item->foreign)
		return mc_say(MC_NOT_MINE);
	made = mc_new(work, 0);
	if (!made)
		return mc_say(MC_NO_MEMORY);
	((struct mc_item __heap *)made)->foreign = 1;
	((struct mc_item __heap *)made)->exptime = 0;
	((struct mc_item __heap *)made)->flags = 0;
	if (work->item) {
		mc_say_bytes(work, SV_WORD("XKITEM "), 7);
		mc_say_number(item->flags);
		mc_say_bytes(work, ' ', 1);
		mc_say_number(item->exptime);
		mc_say_bytes(work, ' ', 1);
		mc_say_number(item->length);
		mc_say_value(work->item);
		mc_unlink(work->shard, work->item);
	} else {
		mc_say(MC_NONE);
	}
	return mc_link(work->shard, made);
}

/*
 * Whether nothing is left to do with the item of the key, if there is one: it was claimed, or the key
 * is memcached's. `set` makes such a key ours again, since it does not look at what there was.
 */
static __always_inline int mc_is_elsewhere(struct mc_work *work)
{
	struct mc_item __heap *item = (struct mc_item __heap *)work->item;

	if (work->spec & MC_CLAIMS) {
		mc_claim();
		return 1;
	}
	if (!work->item || !item->foreign)
		return 0;
	if (work->spec & MC_CREATES && !(work->spec & MC_ONLY_NEW))
		return 0;
	return mc_is_foreign(work);
}

#else

static __always_inline int mc_is_elsewhere(struct mc_work *work)
{
	return 0;
}

#endif

#endif
