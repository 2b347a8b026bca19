/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All keys of a shard, for xk-redis: XKFLUSH drops them, XKKEYS lists them, XKSIZE counts them. The lock
 * of the shard is held. Members are in the same chains, and go with their keys.
 */
#ifndef _XK_REDIS_KEYSPACE_H
#define _XK_REDIS_KEYSPACE_H

#include "store.h"

/* So many buckets and items are looked at by one XKFLUSH or XKKEYS, and the rest of the last bucket. */
#define RD_FLUSHED	1024
#define RD_LISTED	256
/* So often one XKFLUSH frees what dropped keys have left. */
#define RD_SWEEPS	128

/* Reads the words of a command of this file. Whether they are right. */
__noinline int rd_prepare_shard(void)
{
	struct rd_work *work = rd_work();
	__u64 arg;

	if (!work)
		return 0;
	work->link = 0;
	if (work->command == RC_XKSIZE)
		return 1;
	if (!rd_arg_integer(work, 2)) {
		rd_say(RD_NO_INTEGER);
		return 0;
	}
	work->low = work->number;
	if (work->command == RC_XKFLUSH) {
		arg = rd_arg(work, 3);
		work->options = rd_byte(work, RD_AT(arg)) == 'e';
	}
	return 1;
}

/* Whether it is a key that is answered here. */
static __always_inline int rd_is_key(struct rd_item __heap *item)
{
	return !item->owner && item->type != RD_IS_FOREIGN;
}

/*
 * Whether XKFLUSH drops a key: with `e`, those whose time is over. It notes the soonest time of those
 * that stay. What moves stays until it has moved.
 */
static __always_inline int rd_goes(struct rd_work *work, struct rd_item __heap *item)
{
	struct rd_shard __heap *shard = (struct rd_shard __heap *)work->shard;

	if (item->owner)
		return 0;
	if (!work->options)
		return 1;
	if (!item->expires)
		return 0;
	if (item->expires <= rd_now(work) && !item->moves)
		return 1;
	if (item->expires < shard->found)
		shard->found = item->expires;
	return 0;
}

/*
 * The next item in the chains of the shard, from the bucket `low` on; NULL where a bucket ends. Whether
 * there is more to look at: the command ends where a bucket does, when it has looked at `most`.
 */
static __always_inline int rd_next_item(struct rd_work *work, __u64 most,
					struct rd_item __heap **next)
{
	struct rd_shard __heap *shard = (struct rd_shard __heap *)work->shard;
	struct rd_item __heap *item = (struct rd_item __heap *)work->link;

	work->count++;
	*next = item;
	if (item) {
		work->link = (__u64)item->next;
		return 1;
	}
	if (work->low >= RD_BUCKETS || work->count > most)
		return 0;
	work->link = (__u64)shard->buckets[work->low & (RD_BUCKETS - 1)];
	work->low++;
	return 1;
}

/* XKFLUSH drops keys of some buckets. What dropped keys have left goes first. */
__noinline int rd_flush(void)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	struct rd_shard __heap *shard;
	__u64 turn;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	shard = (struct rd_shard __heap *)work->shard;
	if (!work->count && shard->dropped && work->offset < RD_SWEEPS) {
		work->offset++;
		rd_sweep();
		return SV_AGAIN;
	}
	if (!work->count && !work->low && work->options) {
		if (shard->soonest > rd_now(work)) {
			rd_say_number(':', RD_BUCKETS);
			return SV_DONE;
		}
		shard->found = -1;
	}
	work->key_item = 0;
	sv_turns (turn, 64) {
		if (!rd_next_item(work, RD_FLUSHED, &item)) {
			if (work->options && work->low >= RD_BUCKETS)
				shard->soonest = shard->found;
			rd_say_number(':', work->low);
			return SV_DONE;
		}
		if (item && rd_goes(work, item))
			rd_drop((__u64)item);
	}
	return SV_AGAIN;
}

/* XKKEYS says each key with a letter for its type before it, and then the bucket to go on with. */
__noinline int rd_list_keys(void)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	__u64 turn;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	sv_turns (turn, 8) {
		if (!rd_next_item(work, RD_LISTED, &item)) {
			rd_say_number(':', work->low);
			return SV_DONE;
		}
		if (!item || !rd_is_key(item) || (item->expires && item->expires <= rd_now(work)))
			continue;
		rd_say_number('$', 1 + item->key_length);
		rd_say_bytes(work, item->type == RD_IS_STRING ? 's' :
				   item->type == RD_IS_HASH ? 'h' : 'z', 1);
		rd_say_heap((__u64)item->data, item->key_length);
		rd_say_end(work);
	}
	return SV_AGAIN;
}

/* XKSIZE: also keys whose time is over, until they are dropped. */
__noinline int rd_size(void)
{
	struct rd_work *work = rd_work();
	struct rd_shard __heap *shard;

	XK_USE_HEAP();
	if (!work)
		return 0;
	shard = (struct rd_shard __heap *)work->shard;
	return rd_say_number(':', shard->keys - shard->foreign);
}

#endif
