/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Operations on each structure of bpf/flex, one at a time, with their answers: what tests and
 * `cargo xtask flex-fuzz` compare with a model, as an extension, in a module and in a process.
 * model.rs has the same operations in the same order.
 */
#ifndef _XK_BENCH_FLEX_STRUCTURES_H
#define _XK_BENCH_FLEX_STRUCTURES_H

#include "flex/hash.h"
#include "flex/list.h"
#include "flex/lru.h"
#include "flex/radix.h"
#include "flex/rbtree.h"
#include "flex/ring.h"
#include "flex/skiplist.h"
#include "flex/sketch.h"
#include "flex/string.h"

enum xk_structures_operation {
	XK_BEGIN,		/* new structures; the key is a seed */
	XK_END,			/* frees them; they are empty */
	XK_LIST_PUSH, XK_LIST_FIND, XK_LIST_REMOVE,
	XK_HASH_SET, XK_HASH_FIND, XK_HASH_REMOVE,
	XK_RBTREE_SET, XK_RBTREE_FIND, XK_RBTREE_REMOVE, XK_RBTREE_FIRST, XK_RBTREE_RANGE,
	XK_SKIPLIST_INSERT, XK_SKIPLIST_REMOVE, XK_SKIPLIST_RANK, XK_SKIPLIST_AT, XK_SKIPLIST_FIRST,
	XK_LRU_SET, XK_LRU_GET, XK_LRU_PEEK, XK_LRU_REMOVE,
	XK_RING_PUSH, XK_RING_POP, XK_RING_LENGTH,
	XK_RADIX_SET, XK_RADIX_FIND, XK_RADIX_REMOVE,
	XK_COUNTMIN_ADD, XK_COUNTMIN_ESTIMATE,
	XK_HLL_ADD, XK_HLL_ESTIMATE,
	XK_STRING_SET, XK_STRING_READ, XK_STRING_COMPARE, XK_STRING_HASH, XK_STRING_REMOVE,
	XK_WHERE,		/* of a process: where its struct xk_structures is */
};

/* Sizes, which the model knows, too. */
#define XK_STRUCTURES_BITS	4	/* buckets of the tables, and numbers of the queue */
#define XK_STRUCTURES_MOST	40	/* items of the cache */
#define XK_STRUCTURES_STRINGS	16
#define XK_STRUCTURES_TEXT	48	/* bytes of a string */

struct xk_structures {
	struct xk_list __heap *list;
	struct xk_hash __heap *hash;
	struct xk_rbtree __heap *rbtree;
	struct xk_skiplist __heap *skiplist;
	struct xk_lru __heap *lru;
	struct xk_ring __heap *ring;
	struct xk_radix __heap *radix;
	struct xk_countmin __heap *countmin;
	struct xk_hll __heap *hll;
	struct xk_string __heap *strings[XK_STRUCTURES_STRINGS];
	__u64 answer;		/* of the last operation */
};

xk_fn int xk_structures_begin(struct xk_structures *all, __u64 seed)
{
	all->list = xk_malloc(sizeof(*all->list));
	if (!all->list)
		return 0;
	xk_zero(all->list->first);
	xk_zero(all->list->length);
	all->hash = xk_hash_new(XK_STRUCTURES_BITS);
	all->rbtree = xk_rbtree_new();
	all->skiplist = xk_skiplist_new(seed);
	all->lru = xk_lru_new(XK_STRUCTURES_BITS, XK_STRUCTURES_MOST);
	all->ring = xk_ring_new(XK_STRUCTURES_BITS);
	all->radix = xk_radix_new();
	all->countmin = xk_countmin_new(6, 8);
	all->hll = xk_hll_new(10);
	return all->hash && all->rbtree && all->skiplist && all->lru && all->ring && all->radix &&
	       all->countmin && all->hll;
}

xk_fn int xk_structures_end(struct xk_structures *all)
{
	int empty = !all->list->length && !all->hash->length && !all->rbtree->length &&
		    !all->skiplist->length && !all->lru->hash->length && !all->radix->length;

	xk_free(all->list);
	xk_free(all->hash);
	xk_free(all->rbtree);
	xk_free(all->skiplist);
	xk_free(all->lru->hash);
	xk_free(all->lru);
	xk_free(all->ring);
	xk_free(all->radix);
	xk_free(all->countmin);
	xk_free(all->hll);
	all->list = xk_null;
	return empty;
}

/* Each of the following: whether it succeeded; the answer is in all->answer. */

xk_fn int xk_structures_chains(struct xk_structures *all, __u64 operation, __u64 key, __u64 value)
{
	struct xk_item __heap *item;

	switch (operation) {
	case XK_LIST_PUSH:
		return xk_list_push(all->list, key, value);
	case XK_LIST_REMOVE:
		return xk_list_remove(all->list, key);
	case XK_HASH_SET:
		return xk_hash_set(all->hash, key, value);
	case XK_HASH_REMOVE:
		return xk_hash_remove(all->hash, key);
	}
	if (operation == XK_LIST_FIND)
		item = xk_list_find(all->list, key);
	else
		item = xk_hash_find(all->hash, key);
	if (!item)
		return 0;
	all->answer = item->value;
	return 1;
}

/* Nodes from a key on, so many at most; their keys and values, combined. */
xk_fn int xk_structures_range(struct xk_structures *all, __u64 key, __u64 most)
{
	struct xk_rbtree_node __heap *node = xk_rbtree_first(all->rbtree, key);
	__u64 sum = 0;

	while (node && most) {
		sum = sum * 31 + (node->key ^ node->value);
		node = xk_rbtree_next(node);
		xk_forget(node);
		most--;
	}
	all->answer = sum;
	return 1;
}

xk_fn int xk_structures_rbtree(struct xk_structures *all, __u64 operation, __u64 key, __u64 value)
{
	struct xk_rbtree_node __heap *node;

	switch (operation) {
	case XK_RBTREE_SET:
		return xk_rbtree_set(all->rbtree, key, value);
	case XK_RBTREE_REMOVE:
		return xk_rbtree_remove(all->rbtree, key);
	case XK_RBTREE_RANGE:
		return xk_structures_range(all, key, value);
	}
	if (operation == XK_RBTREE_FIND)
		node = xk_rbtree_find(all->rbtree, key);
	else
		node = xk_rbtree_first(all->rbtree, key);
	if (!node)
		return 0;
	all->answer = node->key ^ node->value;
#ifdef XK_STRUCTURES_BROKEN
	/* A wrong answer, which the comparison finds. */
	all->answer += operation == XK_RBTREE_FIRST && key % 8 == 5;
#endif
	return 1;
}

/* Scores are keys of the operation. Scores and keys are below 2^32. */
xk_fn int xk_structures_skiplist(struct xk_structures *all, __u64 operation, __u64 key, __u64 value)
{
	struct xk_skiplist_item __heap *item;

	switch (operation) {
	case XK_SKIPLIST_INSERT:
		return xk_skiplist_insert(all->skiplist, key, value);
	case XK_SKIPLIST_REMOVE:
		return xk_skiplist_remove(all->skiplist, key, value);
	case XK_SKIPLIST_RANK:
		all->answer = xk_skiplist_rank(all->skiplist, key, value);
		return 1;
	}
	if (operation == XK_SKIPLIST_AT)
		item = xk_skiplist_at(all->skiplist, key);
	else
		item = xk_skiplist_first(all->skiplist, key);
	if (!item)
		return 0;
	all->answer = item->score << 32 | item->key;
	return 1;
}

xk_fn int xk_structures_lru(struct xk_structures *all, __u64 operation, __u64 key, __u64 value)
{
	struct xk_lru_item __heap *item;

	switch (operation) {
	case XK_LRU_SET:
		return xk_lru_set(all->lru, key, value);
	case XK_LRU_REMOVE:
		return xk_lru_remove(all->lru, key);
	}
	if (operation == XK_LRU_GET)
		item = xk_lru_get(all->lru, key);
	else
		item = xk_lru_peek(all->lru, key);
	if (!item)
		return 0;
	all->answer = item->item.value;
	return 1;
}

xk_fn int xk_structures_ring(struct xk_structures *all, __u64 operation, __u64 key)
{
	__u64 number = 0;
	int done = 1;

	if (operation == XK_RING_PUSH)
		return xk_ring_push(all->ring, key);
	if (operation == XK_RING_POP)
		done = xk_ring_pop(all->ring, &number);
	else
		number = xk_ring_length(all->ring);
	all->answer = number;
	return done;
}

xk_fn int xk_structures_radix(struct xk_structures *all, __u64 operation, __u64 key, __u64 value)
{
	__u64 __heap *place;

	if (operation == XK_RADIX_SET)
		return xk_radix_set(all->radix, key, value);
	if (operation == XK_RADIX_REMOVE)
		return xk_radix_remove(all->radix, key);
	place = xk_radix_find(all->radix, key);
	if (!place)
		return 0;
	all->answer = *place;
	return 1;
}

xk_fn int xk_structures_sketch(struct xk_structures *all, __u64 operation, __u64 key, __u64 value)
{
	switch (operation) {
	case XK_COUNTMIN_ADD:
		xk_countmin_add(all->countmin, key, value);
		break;
	case XK_COUNTMIN_ESTIMATE:
		all->answer = xk_countmin_estimate(all->countmin, key);
		break;
	case XK_HLL_ADD:
		xk_hll_add(all->hll, key);
		break;
	case XK_HLL_ESTIMATE:
		all->answer = xk_hll_estimate(all->hll);
		break;
	}
	return 1;
}

/* A string of 'a' and 'b', by a number; another one in the place of an earlier one. */
xk_fn int xk_structures_write(struct xk_structures *all, __u64 number, __u64 value)
{
	struct xk_string __heap *string;
	__u8 text[XK_STRUCTURES_TEXT];

	for (__u32 at = 0; at < XK_STRUCTURES_TEXT; at++)
		text[at] = 'a' + (value >> (at & 3) & 1);
	string = xk_string_from(text, (value >> 4) % (XK_STRUCTURES_TEXT + 1), XK_STRUCTURES_TEXT);
	if (!string)
		return 0;
	number &= XK_STRUCTURES_STRINGS - 1;
	xk_free(all->strings[number]);
	all->strings[number] = string;
	return 1;
}

/* The first bytes, in a buffer of the program. */
xk_fn int xk_structures_read(struct xk_structures *all, struct xk_string __heap *string)
{
	__u8 text[XK_STRUCTURES_TEXT / 2] = {};
	__u64 sum = xk_string_to(string, text, sizeof(text));

	for (__u32 at = 0; at < sizeof(text); at++)
		sum = sum * 31 + text[at];
	all->answer = sum;
	return 1;
}

xk_fn int xk_structures_string(struct xk_structures *all, __u64 operation, __u64 key, __u64 value)
{
	struct xk_string __heap *string = all->strings[key & (XK_STRUCTURES_STRINGS - 1)];
	struct xk_string __heap *other = all->strings[value & (XK_STRUCTURES_STRINGS - 1)];

	if (operation == XK_STRING_SET)
		return xk_structures_write(all, key, value);
	if (!string)
		return 0;
	switch (operation) {
	case XK_STRING_READ:
		return xk_structures_read(all, string);
	case XK_STRING_COMPARE:
		if (!other)
			return 0;
		all->answer = xk_string_compare(string, other) + 1;
		break;
	case XK_STRING_HASH:
		all->answer = xk_string_hash(string);
		break;
	case XK_STRING_REMOVE:
		xk_free(string);
		all->strings[key & (XK_STRUCTURES_STRINGS - 1)] = xk_null;
		break;
	}
	return 1;
}

/* One operation. Inline, because a program has eight frames at most. */
xk_inline int xk_structures_turn(struct xk_structures *all, __u64 operation, __u64 key, __u64 value)
{
	all->answer = 0;
	if (operation == XK_BEGIN)
		return xk_structures_begin(all, key);
	if (!all->list)
		return 0;
	if (operation == XK_END)
		return xk_structures_end(all);
	if (operation < XK_RBTREE_SET)
		return xk_structures_chains(all, operation, key, value);
	if (operation < XK_SKIPLIST_INSERT)
		return xk_structures_rbtree(all, operation, key, value);
	if (operation < XK_LRU_SET)
		return xk_structures_skiplist(all, operation, key, value);
	if (operation < XK_RING_PUSH)
		return xk_structures_lru(all, operation, key, value);
	if (operation < XK_RADIX_SET)
		return xk_structures_ring(all, operation, key);
	if (operation < XK_COUNTMIN_ADD)
		return xk_structures_radix(all, operation, key, value);
	if (operation < XK_STRING_SET)
		return xk_structures_sketch(all, operation, key, value);
	return xk_structures_string(all, operation, key, value);
}

/* What is asked for, and what came of it, as tests write and read them. */
struct xk_structures_asked {
	__u64 operation;
	__u64 key;
	__u64 value;
};

struct xk_structures_answered {
	__u64 done;
	__u64 answer;
};

#endif
