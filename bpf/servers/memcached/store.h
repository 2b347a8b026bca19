/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Items of the cache: in shards, each with a lock, a hash table, and a list from the item that was
 * used last to the one that goes first. Who has the lock of a shard finds an item, in a loop in
 * which a run may be ended. Then it changes the shard, in functions in which no run is ended. So
 * a run that is ended has made a change as a whole or not at all.
 */
#ifndef _XK_MEMCACHED_STORE_H
#define _XK_MEMCACHED_STORE_H

#include "work.h"

#define MC_SHARDS	64
#define MC_BUCKETS	1024	/* of a shard */
#define MC_EVICTED	16	/* at most so many items go for a new one */
/*
 * Numbers of items over TCP are above those that memcached gives, so that one which a client has
 * of an item here is none of an item there.
 */
#define MC_FIRST_CAS	(MC_IS_STREAM ? 1ull << 62 : 0)

struct mc_item {
	struct mc_item __heap *next;		/* of its bucket */
	struct mc_item __heap * __heap *place;	/* what points to it there */
	struct mc_item __heap *newer;
	struct mc_item __heap *older;
	__u64 hash;
	__u64 cas;
	__u64 exptime;
	__u64 time;		/* when it was stored */
	__u32 flags;
	__u32 key_length;
	__u32 length;		/* of the value */
	__u32 foreign;		/* the key is memcached's; there is no value here */
	__u64 data[];		/* the key, filled up with zeros to whole words, and the value */
};

struct mc_shard {
	struct xk_lock lock;
	struct mc_item __heap *newest;
	struct mc_item __heap *oldest;
	__u64 items;
	__u64 gets;
	__u64 hits;
	__u64 sets;
	__u64 evicted;
	__u64 unused;
	struct mc_item __heap *buckets[MC_BUCKETS];
};

/* What all shards share. */
struct mc_store {
	__u64 cas;		/* of the item that was stored last */
	__u64 flush_time;	/* items from this second or before are gone, if it has come; 0: none */
	__u64 flush_cas;	/* so are items that were stored before this one */
	__u64 unused;
	struct mc_shard __heap *shards[MC_SHARDS];
};

struct mc_store __heap *mc_store;

/* The heap's functions, followed once. */
__noinline __u64 mc_malloc(__u64 bytes)
{
	return (__u64)xk_malloc(bytes);
}

__noinline int mc_free(__u64 object)
{
	xk_free((void __heap *)object);
	return 0;
}

/* An object of zeros: a shard, or the store, which is smaller; NULL without memory. */
__noinline __u64 mc_zeros(void)
{
	__u64 object = mc_malloc(sizeof(struct mc_shard)), at;
	volatile __u64 __heap *words = (__u64 __heap *)object;

	if (!object)
		return 0;
	sv_turns (at, sizeof(struct mc_shard) / 8)
		words[at] = 0;
	return object;
}

/* The shard of the key; NULL without memory. */
__noinline __u64 mc_shard(__u64 hash)
{
	struct mc_shard __heap * __heap *place;
	__u64 object, other;

	XK_USE_HEAP();
	if (!mc_store) {
		object = mc_zeros();
		if (!object)
			return 0;
		if (__sync_val_compare_and_swap((__u64 *)&mc_store, 0, object))
			mc_free(object);
	}
	place = &mc_store->shards[hash >> 58];
	object = *(__u64 __heap *)place;
	if (object)
		return object;
	object = mc_zeros();
	if (!object)
		return 0;
	other = __sync_val_compare_and_swap((__u64 __heap *)place, 0, object);
	if (other) {
		mc_free(object);
		object = other;
	}
	return object;
}

/* The first byte of the value. */
static __always_inline __u8 __heap *mc_value(struct mc_item __heap *item)
{
	return (__u8 __heap *)&item->data[sv_words(item->key_length)];
}

/* Whether an item has the key of the request. */
__noinline int mc_has_key(__u64 which)
{
	struct mc_item __heap *item = (struct mc_item __heap *)which;
	struct mc_work *work = mc_work();
	__u64 words, at;

	XK_USE_HEAP();
	if (!work || item->key_length != work->key_length)
		return 0;
	words = sv_words(work->key_length);
	sv_turns (at, MC_KEY_WORDS) {
		if (at >= words)
			break;
		if (item->data[at] != work->key[at])
			return 0;
	}
	return 1;
}

/* Finds the item with the key of the request. Here a run may be ended. */
static __noinline void mc_find(struct mc_work *work, __u64 which)
{
	struct mc_shard __heap *shard = (struct mc_shard __heap *)which;
	struct mc_item __heap *item = shard->buckets[work->hash & (MC_BUCKETS - 1)];

	while (item) {
		if (item->hash == work->hash && mc_has_key((__u64)item))
			break;
		item = item->next;
	}
	work->item = (__u64)item;
}

static __always_inline void mc_leave_list(struct mc_shard __heap *shard, struct mc_item __heap *item)
{
	if (item->newer)
		item->newer->older = item->older;
	else
		shard->newest = item->older;
	if (item->older)
		item->older->newer = item->newer;
	else
		shard->oldest = item->newer;
}

static __always_inline void mc_enter_list(struct mc_shard __heap *shard, struct mc_item __heap *item)
{
	item->newer = (struct mc_item __heap *)0;
	item->older = shard->newest;
	if (shard->newest)
		shard->newest->newer = item;
	else
		shard->oldest = item;
	shard->newest = item;
}

/* It was used. */
__noinline int mc_bump(__u64 of, __u64 which)
{
	struct mc_shard __heap *shard = (struct mc_shard __heap *)of;
	struct mc_item __heap *item = (struct mc_item __heap *)which;

	XK_USE_HEAP();
	if (shard->newest == item)
		return 0;
	mc_leave_list(shard, item);
	mc_enter_list(shard, item);
	return 0;
}

/* Takes an item out of the shard, and frees it. */
__noinline int mc_unlink(__u64 of, __u64 which)
{
	struct mc_shard __heap *shard = (struct mc_shard __heap *)of;
	struct mc_item __heap *item = (struct mc_item __heap *)which;

	XK_USE_HEAP();
	*item->place = item->next;
	if (item->next)
		item->next->place = item->place;
	mc_leave_list(shard, item);
	shard->items -= !item->foreign;
	mc_free(which);
	return 0;
}

/* The next number of a change. */
static __always_inline __u64 mc_next_cas(void)
{
	return MC_FIRST_CAS + __sync_fetch_and_add(&mc_store->cas, 1) + 1;
}

/* Puts a new item into the shard. */
__noinline int mc_link(__u64 of, __u64 which)
{
	struct mc_shard __heap *shard = (struct mc_shard __heap *)of;
	struct mc_item __heap *item = (struct mc_item __heap *)which;
	struct mc_item __heap * __heap *place = &shard->buckets[item->hash & (MC_BUCKETS - 1)];

	XK_USE_HEAP();
	item->cas = mc_next_cas();
	item->place = place;
	item->next = *place;
	if (item->next)
		item->next->place = &item->next;
	*place = item;
	mc_enter_list(shard, item);
	shard->items += !item->foreign;
	return 0;
}

/* Whether its time is over, or everything from its time was flushed. */
static __always_inline int mc_is_gone(struct mc_work *work, struct mc_item __heap *item)
{
	__u64 flushed = mc_store->flush_time;

	if (item->exptime && item->exptime <= work->now)
		return 1;
	if (!flushed || flushed > work->now)
		return 0;
	return item->time <= flushed || item->cas < mc_store->flush_cas;
}

/*
 * An item for the key of the request and a value of this length; NULL without memory. The oldest
 * items go for it, but not the one with this key.
 */
static __always_inline __u64 mc_new(struct mc_work *work, __u64 length)
{
	struct mc_shard __heap *shard = (struct mc_shard __heap *)work->shard;
	struct mc_item __heap *item;
	__u64 made, words, at, bytes;

	words = sv_words(work->key_length);
	bytes = sizeof(struct mc_item) + 8 * words + length + 8;
	sv_turns (at, MC_EVICTED) {
		made = mc_malloc(bytes);
		if (made || !shard->oldest || (__u64)shard->oldest == work->item)
			break;
		mc_unlink((__u64)shard, (__u64)shard->oldest);
		shard->evicted++;
	}
	if (!made)
		return 0;
	item = (struct mc_item __heap *)made;
	item->hash = work->hash;
	item->key_length = work->key_length;
	item->length = length;
	item->foreign = 0;
	item->time = work->now;
	sv_turns (at, MC_KEY_WORDS) {
		if (at >= words)
			break;
		item->data[at] = work->key[at];
	}
	return made;
}

/* Copies bytes of the request into a value. Up to seven more are written behind them. */
__noinline int mc_fill(__u64 to, __u64 from, __u64 length)
{
	volatile __u64 __heap *words = (__u64 __heap *)to;
	struct mc_work *work = mc_work();
	__u64 at;

	XK_USE_HEAP();
	if (!work)
		return 0;
	sv_turns (at, MC_MOST / 8) {
		if (8 * at >= length)
			break;
		words[at] = mc_eight(work, from + 8 * at);
	}
	return 0;
}

/* Copies bytes of a value, as above. */
__noinline int mc_copy(__u64 to, __u64 from, __u64 length)
{
	volatile __u64 __heap *words = (__u64 __heap *)to;
	volatile __u64 __heap *others = (__u64 __heap *)from;
	__u64 at;

	XK_USE_HEAP();
	sv_turns (at, MC_VALUE / 8) {
		if (8 * at >= length)
			break;
		words[at] = others[at];
	}
	return 0;
}

/* Adds bytes of the heap to the reply; there is room. */
__noinline int mc_say_heap(__u64 from, __u64 length)
{
	volatile __u64 __heap *words = (__u64 __heap *)from;
	struct mc_work *work = mc_work();
	__u64 at, out;

	XK_USE_HEAP();
	if (!work)
		return 0;
	out = work->out;
	sv_turns (at, MC_MOST / 8) {
		if (8 * at >= length)
			break;
		sv_store(&work->reply[(out + 8 * at) & MC_OUT_MASK], words[at]);
	}
	work->out = out + length;
	return 0;
}

#endif
