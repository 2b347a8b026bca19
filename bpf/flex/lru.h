/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A cache of keys with values, of bounded size: a hash table, and a list of its items in the order
 * of their use. A new item takes the place of the one whose last use is the longest ago. Who uses a
 * cache is alone with it, because looking up a key changes the order. A run that is ended in one of
 * these functions has changed nothing. In xk_lru_new(), it loses the memory of the table.
 */
#ifndef _XK_FLEX_LRU_H
#define _XK_FLEX_LRU_H

#include "hash.h"

struct xk_lru_item {
	struct xk_item item;	/* in the table */
	struct xk_lru_item __heap *newer;
	struct xk_lru_item __heap *older;
};

struct xk_lru {
	struct xk_hash __heap *hash;
	__u64 most;		/* items */
	struct xk_lru_item ends;	/* newer than the newest, and older than the oldest */
};

/* A cache of so many items at most, with 2^bits buckets; NULL without memory. */
xk_fn struct xk_lru __heap *xk_lru_new(__u32 bits, __u64 most)
{
	struct xk_hash __heap *hash;
	struct xk_lru __heap *lru;

	if (!most)
		return xk_null;
	hash = xk_hash_new(bits);
	if (!hash)
		return xk_null;
	lru = xk_malloc(sizeof(*lru));
	if (!lru) {
		xk_free(hash);
		return xk_null;
	}
	lru->hash = hash;
	lru->most = most;
	lru->ends.newer = &lru->ends;
	lru->ends.older = &lru->ends;
	return lru;
}

xk_inline void xk_lru_unlink(struct xk_lru_item __heap *item)
{
	item->newer->older = item->older;
	item->older->newer = item->newer;
}

/* It is the newest now. */
xk_inline void xk_lru_link(struct xk_lru __heap *lru, struct xk_lru_item __heap *item)
{
	item->newer = &lru->ends;
	item->older = lru->ends.older;
	item->older->newer = item;
	lru->ends.older = item;
}

/* The item with this key, or NULL, without using it. */
xk_inline struct xk_lru_item __heap *xk_lru_peek(struct xk_lru __heap *lru, __u64 key)
{
	return (struct xk_lru_item __heap *)xk_hash_find(lru->hash, key);
}

/* The item with this key, or NULL. It is used, and so the newest now. */
xk_inline struct xk_lru_item __heap *xk_lru_get(struct xk_lru __heap *lru, __u64 key)
{
	struct xk_lru_item __heap *item = xk_lru_peek(lru, key);

	if (item) {
		xk_lru_unlink(item);
		xk_lru_link(lru, item);
	}
	return item;
}

/* An item for a new key: the oldest one, if there are enough; NULL without memory. */
xk_inline struct xk_lru_item __heap *xk_lru_take(struct xk_lru __heap *lru)
{
	struct xk_lru_item __heap *oldest = lru->ends.newer;
	struct xk_item __heap * __heap *place;

	if (lru->hash->length < lru->most) {
		oldest = xk_malloc(sizeof(*oldest));
		lru->hash->length += !!oldest;
		return oldest;
	}
	place = xk_chain_place(xk_hash_bucket(lru->hash, oldest->item.key), oldest->item.key);
	*place = oldest->item.next;
	xk_lru_unlink(oldest);
	return oldest;
}

/* Whether the key has this value now, and is the newest: there was memory, or it was there. */
xk_fn int xk_lru_set(struct xk_lru __heap *lru, __u64 key, __u64 value)
{
	struct xk_lru_item __heap *item = xk_lru_get(lru, key);
	struct xk_item __heap * __heap *bucket;

	if (item) {
		item->item.value = value;
		return 1;
	}
	item = xk_lru_take(lru);
	if (!item)
		return 0;
	bucket = xk_hash_bucket(lru->hash, key);
	item->item.next = *bucket;
	item->item.key = key;
	item->item.value = value;
	*bucket = (struct xk_item __heap *)item;
	xk_lru_link(lru, item);
	return 1;
}

/* Removes a key; whether it was there. */
xk_fn int xk_lru_remove(struct xk_lru __heap *lru, __u64 key)
{
	struct xk_item __heap * __heap *place = xk_chain_place(xk_hash_bucket(lru->hash, key), key);
	struct xk_item __heap *item = *place;

	if (!item)
		return 0;
	*place = item->next;
	lru->hash->length--;
	xk_lru_unlink((struct xk_lru_item __heap *)item);
	xk_free(item);
	return 1;
}

#endif
