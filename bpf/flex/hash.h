/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A hash table of keys with values, with a chain of items for each bucket. The number of buckets is
 * given once. Who changes a table is alone with it. A run that is ended in one of these functions
 * has changed nothing. In xk_hash_new(), it loses the memory of the table.
 */
#ifndef _XK_FLEX_HASH_H
#define _XK_FLEX_HASH_H

#include "chain.h"

struct xk_hash {
	__u64 shift;		/* 64 less the binary logarithm of the number of buckets */
	__u64 length;
	struct xk_item __heap *buckets[];
};

/* A table with 2^bits buckets, from 1 to 24 bits; NULL without memory. */
xk_fn struct xk_hash __heap *xk_hash_new(__u32 bits)
{
	struct xk_hash __heap *hash;

	if (bits < 1 || bits > 24)
		return xk_null;
	hash = xk_calloc(1, sizeof(*hash) + ((__u64)sizeof(hash->buckets[0]) << bits));
	if (hash)
		hash->shift = 64 - bits;
	return hash;
}

/* Knuth's multiplicative hash, with the golden ratio of 2^64. */
xk_inline struct xk_item __heap * __heap *xk_hash_bucket(struct xk_hash __heap *hash, __u64 key)
{
	return &hash->buckets[key * 0x9e3779b97f4a7c15ull >> hash->shift];
}

/* The item with this key, or NULL. */
xk_inline struct xk_item __heap *xk_hash_find(struct xk_hash __heap *hash, __u64 key)
{
	return xk_chain_find(*xk_hash_bucket(hash, key), key);
}

/* Adds a key that is not there; whether there was memory. */
xk_fn int xk_hash_add(struct xk_hash __heap *hash, __u64 key, __u64 value)
{
	int pushed = xk_chain_push(xk_hash_bucket(hash, key), key, value);

	hash->length += pushed;
	return pushed;
}

/* Whether the key has this value now: there was memory, or it was there. */
xk_inline int xk_hash_set(struct xk_hash __heap *hash, __u64 key, __u64 value)
{
	struct xk_item __heap *item = xk_hash_find(hash, key);

	if (!item)
		return xk_hash_add(hash, key, value);
	item->value = value;
	return 1;
}

/* Removes a key; whether it was there. */
xk_fn int xk_hash_remove(struct xk_hash __heap *hash, __u64 key)
{
	int removed = xk_chain_remove(xk_hash_bucket(hash, key), key);

	hash->length -= removed;
	return removed;
}

#endif
