/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose keys are, for xk-redis: XKCLAIM and XKGIVE. The key of the command was found, and the
 * lock of its shard is held. A key of redis-server has an item here that says so, and no value.
 */
#ifndef _XK_REDIS_OWNERS_H
#define _XK_REDIS_OWNERS_H

#include "store.h"

/* Makes the key redis-server's, in the place of the item that it has. Whether there was memory. */
__noinline int rd_give(void)
{
	struct rd_work *work = rd_work();
	__u64 made;

	XK_USE_HEAP();
	if (!work)
		return 0;
	work->owner = 0;
	made = rd_new(RD_IS_FOREIGN, 0, 0);
	if (!made)
		return 0;
	__sync_fetch_and_add(&rd_store->foreign, 1);
	if (work->key_item)
		rd_drop(work->key_item);
	work->key_item = 0;
	rd_link(made);
	return 1;
}

/* Whose the key is. */
__noinline int rd_claim(void)
{
	struct rd_work *work = rd_work();
	__u64 type, arg;

	XK_USE_HEAP();
	if (!work)
		return 0;
	type = rd_type(work->key_item);
	if (type && type != RD_IS_FOREIGN) {
		if (((struct rd_item __heap *)work->key_item)->moves)
			return rd_say(RD_MOVING);
		return rd_say(type == RD_IS_STRING ? RD_STRING : type == RD_IS_HASH ? RD_HASH : RD_ZSET);
	}
	arg = rd_arg(work, 2);
	if (!type && rd_byte(work, RD_AT(arg)) == 'w' && !rd_give())
		return rd_say(RD_MEMORY);
	return rd_say(RD_ONE);
}

/*
 * A key moves to redis-server. From the beginning on, commands of several keys are not answered here:
 * xk-redis waits until those that are under way have ended.
 */
__noinline int rd_move(void)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	__u64 type, arg;

	XK_USE_HEAP();
	if (!work)
		return 0;
	type = rd_type(work->key_item);
	if (type == RD_IS_FOREIGN)
		return rd_say_number(':', 2);
	if (!type || sv_connection(work)->asks != SV_MOVES)
		return rd_say(RD_ZERO);
	item = (struct rd_item __heap *)work->key_item;
	arg = rd_arg(work, 2);
	if (rd_byte(work, RD_AT(arg)) == 'b') {
		__sync_fetch_and_add(&rd_store->foreign, 1);
		item->moves = 1;
		return rd_say(RD_ONE);
	}
	if (!item->moves)
		return rd_say(RD_ZERO);
	if (rd_byte(work, RD_AT(arg)) != 'e')
		*(volatile __u64 __heap *)&item->moves = 0;
	else if (!rd_give())
		return rd_say(RD_MEMORY);
	return rd_say(RD_ONE);
}

#endif
