/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keys and their values, in shards with a lock each. The fields of hashes and the members of sorted
 * sets are items as keys are, in the same table, with the item of the key as owner.
 *
 * Who has the lock of a shard finds items in a loop in which a run may be ended. Changes are made
 * in functions in which no run is ended.
 */
#ifndef _XK_REDIS_STORE_H
#define _XK_REDIS_STORE_H

#include "table.h"

/* Members are strings, in the order of their bytes. */
__noinline int rd_is_before(__u64 key, __u64 other);
#define XK_SKIPLIST_LESS(key, other)	rd_is_before(key, other)
#include "flex/skiplist.h"

#define RD_SHARDS	64
#define RD_BUCKETS	4096	/* of a shard */
#define RD_SWEPT	8	/* objects of dropped keys that one request frees */

/* A foreign key is redis-server's, and has no value here. */
enum rd_types { RD_IS_MEMBER, RD_IS_STRING, RD_IS_HASH, RD_IS_ZSET, RD_IS_FOREIGN };

struct rd_item {
	struct rd_item __heap *next;		/* of its bucket */
	struct rd_item __heap * __heap *place;	/* what points to it there */
	__u64 hash;
	__u64 owner;		/* the key's item of a member or field; 0 for a key */
	__u32 type;
	__u32 key_length;
	__u64 expires;		/* milliseconds since 1970; 0: never */
	__u64 length;		/* of the value */
	__u64 set;		/* struct rd_set of a hash or sorted set */
	struct rd_item __heap *newer;	/* of the members of the owner */
	struct rd_item __heap *older;
	union {
		__s64 score;	/* of a member */
		__u64 moves;	/* of a key: xk-redis hands it to redis-server, and alone sees it */
	};
	__u64 data[];		/* the key, filled up with zeros to whole words, and the value */
};

/* What is about to be done with the list of a sorted set. A run that finds it there does it. */
#define RD_LEAVES	1	/* the member leaves the place of its score `from` */
#define RD_ENTERS	2	/* it gets the score `to` */
#define RD_NEW		4	/* it has never been in the list */
#define RD_GOES		8	/* it is no member any longer */

struct rd_set {
	__u64 count;
	struct rd_item __heap *oldest;
	struct rd_item __heap *newest;
	__u64 list;		/* struct xk_skiplist of a sorted set */
	__u64 change;
	__u64 member;
	__s64 from;
	__s64 to;
};

struct rd_shard {
	struct xk_lock lock;
	struct rd_item __heap *dropped;		/* keys whose members are to be freed, by `newer` */
	__u64 keys;
	__u64 foreign;		/* of these, that are redis-server's */
	__u64 soonest;		/* no time is over before this one */
	__u64 found;		/* the soonest of those that were looked at */
	struct rd_item __heap *buckets[RD_BUCKETS];
};

struct rd_store {
	__u64 foreign;		/* keys of redis-server, ever */
	struct rd_shard __heap *shards[RD_SHARDS];
};

struct rd_store __heap *rd_store;

/* An object of zeros: a shard, or what is smaller; NULL without memory. */
__noinline __u64 rd_zeros(__u64 bytes)
{
	__u64 object = xk_malloc_apart(bytes), at;
	volatile __u64 __heap *words = (__u64 __heap *)object;

	if (!object)
		return 0;
	sv_turns (at, sizeof(struct rd_shard) / 8) {
		if (8 * at >= bytes)
			break;
		words[at] = 0;
	}
	return object;
}

/* The shard of the key; NULL without memory. */
__noinline __u64 rd_shard(__u64 hash)
{
	struct rd_shard __heap * __heap *place;
	__u64 object, other;

	XK_USE_HEAP();
	if (!rd_store) {
		object = rd_zeros(sizeof(struct rd_store));
		if (!object)
			return 0;
		if (__sync_val_compare_and_swap((__u64 *)&rd_store, 0, object))
			xk_free_apart(object);
	}
	place = &rd_store->shards[hash >> 58];
	object = *(__u64 __heap *)place;
	if (object)
		return object;
	object = rd_zeros(sizeof(struct rd_shard));
	if (!object)
		return 0;
	other = __sync_val_compare_and_swap((__u64 __heap *)place, 0, object);
	if (other) {
		xk_free_apart(object);
		object = other;
	}
	return object;
}

/* The first byte of the value. */
static __always_inline __u64 rd_value(struct rd_item __heap *item)
{
	return (__u64)&item->data[sv_words(item->key_length)];
}

static __always_inline struct rd_set __heap *rd_set_of(__u64 item)
{
	return (struct rd_set __heap *)((struct rd_item __heap *)item)->set;
}

__noinline int rd_is_before(__u64 key, __u64 other)
{
	struct rd_item __heap *one = (struct rd_item __heap *)key;
	struct rd_item __heap *two = (struct rd_item __heap *)other;
	__u64 at, words, a, b;

	XK_USE_HEAP();
	if (!key || !other || key == other)
		return !key && other;
	words = sv_words(one->key_length < two->key_length ? one->key_length : two->key_length);
	sv_turns (at, RD_KEY_WORDS) {
		if (at >= words)
			break;
		a = __builtin_bswap64(one->data[at]);
		b = __builtin_bswap64(two->data[at]);
		if (a != b)
			return a < b;
	}
	return one->key_length < two->key_length;
}

/* Whether an item is what is sought. */
__noinline int rd_is_it(__u64 which)
{
	struct rd_item __heap *item = (struct rd_item __heap *)which;
	struct rd_work *work = rd_work();
	__u64 words, at;

	XK_USE_HEAP();
	if (!work || item->owner != work->owner || item->key_length != work->key_length)
		return 0;
	words = sv_words(work->key_length);
	sv_turns (at, RD_KEY_WORDS) {
		if (at >= words)
			break;
		if (item->data[at] != work->key[at])
			return 0;
	}
	return 1;
}

/* Finds an item. Here a run may be ended. */
static __noinline void rd_find(struct rd_work *work, __u64 which)
{
	struct rd_shard __heap *shard = (struct rd_shard __heap *)which;
	struct rd_item __heap *item = shard->buckets[work->hash & (RD_BUCKETS - 1)];

	while (item) {
		if (item->hash == work->hash && rd_is_it((__u64)item))
			break;
		item = item->next;
	}
	work->item = (__u64)item;
}

/* Copies bytes of the request into a value. Up to seven more are written behind them. */
__noinline int rd_fill(__u64 to, __u64 from, __u64 length)
{
	volatile __u64 __heap *words = (__u64 __heap *)to;
	struct rd_work *work = rd_work();
	__u64 at;

	XK_USE_HEAP();
	if (!work)
		return 0;
	sv_turns (at, RD_MOST / 8) {
		if (8 * at >= length)
			break;
		words[at] = rd_eight(work, from + 8 * at);
	}
	return 0;
}

/*
 * An item for what was sought, with a value from the request; NULL without memory. It is in no
 * table yet.
 */
__noinline __u64 rd_new(__u64 type, __u64 from, __u64 length)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	__u64 words, at, made;

	XK_USE_HEAP();
	if (!work)
		return 0;
	words = sv_words(work->key_length);
	made = xk_malloc_apart(sizeof(struct rd_item) + 8 * words + length + 8);
	if (!made)
		return 0;
	item = (struct rd_item __heap *)made;
	item->hash = work->hash;
	item->owner = work->owner;
	item->type = type;
	item->key_length = work->key_length;
	item->length = length;
	/* A key does not move. */
	item->score = work->owner ? work->score : 0;
	*(volatile __u64 __heap *)&item->expires = 0;
	*(volatile __u64 __heap *)&item->set = 0;
	*(volatile __u64 __heap *)&item->newer = 0;
	*(volatile __u64 __heap *)&item->older = 0;
	sv_turns (at, RD_KEY_WORDS) {
		if (at >= words)
			break;
		item->data[at] = work->key[at];
	}
	rd_fill(rd_value(item), from, length);
	return made;
}

/* Puts a new item into the table, and among the members of its owner. */
__noinline int rd_link(__u64 which)
{
	struct rd_item __heap *item = (struct rd_item __heap *)which;
	struct rd_item __heap * __heap *place;
	struct rd_work *work = rd_work();
	struct rd_shard __heap *shard;
	struct rd_set __heap *set;

	XK_USE_HEAP();
	if (!work)
		return 0;
	shard = (struct rd_shard __heap *)work->shard;
	place = &shard->buckets[item->hash & (RD_BUCKETS - 1)];
	item->place = place;
	item->next = *place;
	if (item->next)
		item->next->place = &item->next;
	*place = item;
	if (!item->owner) {
		shard->keys++;
		shard->foreign += item->type == RD_IS_FOREIGN;
		return 0;
	}
	set = rd_set_of(item->owner);
	item->older = set->newest;
	if (set->newest)
		set->newest->newer = item;
	else
		set->oldest = item;
	set->newest = item;
	set->count++;
	return 0;
}

/* Says when the time of a key is over; 0: never. The lock of its shard is held. */
static __always_inline void rd_expires(struct rd_work *work, struct rd_item __heap *item,
				       __u64 time)
{
	struct rd_shard __heap *shard = (struct rd_shard __heap *)work->shard;

	item->expires = time;
	if (time && time < shard->soonest)
		shard->soonest = time;
	if (time && time < shard->found)
		shard->found = time;
}

/* Takes an item out of the table. */
static __always_inline void rd_leave(struct rd_item __heap *item)
{
	*item->place = item->next;
	if (item->next)
		item->next->place = item->place;
}

/* Takes a member out of the table and from its owner, and frees it. */
__noinline int rd_remove_member(__u64 which)
{
	struct rd_item __heap *item = (struct rd_item __heap *)which;
	struct rd_set __heap *set;

	XK_USE_HEAP();
	set = rd_set_of(item->owner);
	rd_leave(item);
	if (item->newer)
		item->newer->older = item->older;
	else
		set->newest = item->older;
	if (item->older)
		item->older->newer = item->newer;
	else
		set->oldest = item->newer;
	set->count--;
	return xk_free_apart(which);
}

/* Takes a key out of the table. A string is freed; members are freed by and by. */
__noinline int rd_drop(__u64 which)
{
	struct rd_item __heap *item = (struct rd_item __heap *)which;
	struct rd_work *work = rd_work();
	struct rd_shard __heap *shard;

	XK_USE_HEAP();
	if (!work)
		return 0;
	shard = (struct rd_shard __heap *)work->shard;
	rd_leave(item);
	shard->keys--;
	shard->foreign -= item->type == RD_IS_FOREIGN;
	if (item->type == RD_IS_STRING || item->type == RD_IS_FOREIGN)
		return xk_free_apart(which);
	item->newer = shard->dropped;
	shard->dropped = item;
	return 0;
}

/* Puts an item in the place of another one, which is freed. */
__noinline int rd_replace(__u64 old, __u64 new)
{
	struct rd_item __heap *item = (struct rd_item __heap *)new;
	struct rd_item __heap *before = (struct rd_item __heap *)old;
	struct rd_set __heap *set;

	XK_USE_HEAP();
	item->place = before->place;
	item->next = before->next;
	*item->place = item;
	if (item->next)
		item->next->place = &item->next;
	if (item->owner) {
		set = rd_set_of(item->owner);
		item->newer = before->newer;
		item->older = before->older;
		if (item->newer)
			item->newer->older = item;
		else
			set->newest = item;
		if (item->older)
			item->older->newer = item;
		else
			set->oldest = item;
	}
	return xk_free_apart(old);
}

/* Frees some of what dropped keys have left. */
__noinline int rd_sweep(void)
{
	struct rd_work *work = rd_work();
	struct xk_skiplist __heap *list;
	struct xk_skiplist_item __heap *link;
	struct rd_shard __heap *shard;
	struct rd_item __heap *item;
	struct rd_set __heap *set;
	__u64 turn;

	XK_USE_HEAP();
	if (!work)
		return 0;
	shard = (struct rd_shard __heap *)work->shard;
	sv_turns (turn, RD_SWEPT) {
		item = shard->dropped;
		if (!item)
			break;
		set = (struct rd_set __heap *)item->set;
		list = (struct xk_skiplist __heap *)set->list;
		if (list && list->head.links[0].next) {
			link = list->head.links[0].next;
			list->head.links[0].next = link->links[0].next;
			xk_free_apart((__u64)link);
		} else if (set->oldest) {
			rd_remove_member((__u64)set->oldest);
		} else {
			shard->dropped = item->newer;
			xk_free_apart((__u64)list);
			xk_free_apart((__u64)set);
			xk_free_apart((__u64)item);
		}
	}
	return 0;
}

/* A hash or sorted set for the key, in the table; NULL without memory. */
__noinline __u64 rd_new_set(__u64 type)
{
	__u64 made, set = rd_zeros(sizeof(struct rd_set)), list = 0;

	XK_USE_HEAP();
	if (!set)
		return 0;
	if (type == RD_IS_ZSET) {
		list = (__u64)xk_skiplist_new(bpf_ktime_get_ns());
		if (!list)
			goto free;
		((struct rd_set __heap *)set)->list = list;
	}
	made = rd_new(type, 0, 0);
	if (!made)
		goto free;
	((struct rd_item __heap *)made)->set = set;
	rd_link(made);
	return made;
free:
	xk_free_apart(list);
	xk_free_apart(set);
	return 0;
}

#endif
