/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What `cargo xtask bench flex` measures, as an extension, in a module and in a process: one source
 * for the three of them. Operations are executed in this order.
 */
#ifndef _XK_BENCH_FLEX_OPERATIONS_H
#define _XK_BENCH_FLEX_OPERATIONS_H

#include "flex/hash.h"
#include "flex/list.h"
#include "flex/lru.h"
#include "flex/rbtree.h"
#include "flex/skiplist.h"

/* Each operation: its name, what it is called, and how often it is executed. */
#define XK_BENCH_EACH(each) \
	each(NOTHING, nothing, turn, 4096) \
	each(LIST_PUSH, list, push, 512) \
	each(LIST_LOOKUP, list, lookup, 512) \
	each(LIST_WALK, list, walk, 64) \
	each(LIST_REMOVE, list, remove, 512) \
	each(HASH_INSERT, hash, insert, 4096) \
	each(HASH_UPDATE, hash, update, 4096) \
	each(HASH_LOOKUP, hash, lookup, 4096) \
	each(HASH_REMOVE, hash, remove, 4096) \
	each(RBTREE_INSERT, rbtree, insert, 4096) \
	each(RBTREE_LOOKUP, rbtree, lookup, 4096) \
	each(RBTREE_NEXT, rbtree, next, 4096) \
	each(RBTREE_REMOVE, rbtree, remove, 4096) \
	each(SKIPLIST_INSERT, skiplist, insert, 4096) \
	each(SKIPLIST_RANK, skiplist, rank, 4096) \
	each(SKIPLIST_AT, skiplist, at, 4096) \
	each(SKIPLIST_REMOVE, skiplist, remove, 4096) \
	each(LRU_SET, lru, set, 4096) \
	each(LRU_GET, lru, get, 4096) \
	each(LRU_REMOVE, lru, remove, 4096) \
	each(MALLOC, heap, malloc, 4096) \
	each(FREE, heap, free, 4096)

#define XK_BENCH_NUMBER(name, structure, operation, turns) XK_BENCH_##name,

enum xk_bench_operation {
	XK_BENCH_EACH(XK_BENCH_NUMBER)
	XK_BENCH_OPERATIONS
};

/* Buckets of the tables: four items in each, and two of the cache. */
#define XK_BENCH_BITS	10
/* Items of the cache. */
#define XK_BENCH_MOST	2048

struct xk_bench_object {
	struct xk_bench_object __heap *next;
	__u64 more[7];
};

struct xk_bench {
	struct xk_list __heap *list;
	struct xk_hash __heap *hash;
	struct xk_rbtree __heap *rbtree;
	struct xk_rbtree_node __heap *node;	/* that a walk has reached */
	struct xk_skiplist __heap *skiplist;
	struct xk_lru __heap *lru;
	struct xk_bench_object __heap *objects;
	/* So that nothing is left out by the compiler. */
	__u64 sum;
};

/* Whether there was memory. */
static inline int xk_bench_begin(struct xk_bench *bench)
{
	bench->list = xk_calloc(1, sizeof(*bench->list));
	bench->hash = xk_hash_new(XK_BENCH_BITS);
	bench->rbtree = xk_rbtree_new();
	bench->skiplist = xk_skiplist_new(1);
	bench->lru = xk_lru_new(XK_BENCH_BITS, XK_BENCH_MOST);
	return bench->list && bench->hash && bench->rbtree && bench->skiplist && bench->lru;
}

/* The structures are empty. */
static inline void xk_bench_end(struct xk_bench *bench)
{
	if (bench->lru)
		xk_free(bench->lru->hash);
	xk_free(bench->lru);
	xk_free(bench->skiplist);
	xk_free(bench->rbtree);
	xk_free(bench->hash);
	xk_free(bench->list);
}

/* Each number below a power of two once, in an order that depends on the odd factor. */
static inline __u64 xk_bench_key(__u64 turn, __u64 turns, __u64 factor)
{
	return turn * factor & (turns - 1);
}

/* Trees and the skip list. */
xk_inline void xk_bench_ordered(struct xk_bench *bench, __u64 operation, __u64 turn)
{
	struct xk_skiplist_item __heap *item;
	struct xk_rbtree_node __heap *node;
	__u64 key = xk_bench_key(turn, 4096, 0x1b3);

	switch (operation) {
	case XK_BENCH_RBTREE_INSERT:
		xk_rbtree_set(bench->rbtree, xk_bench_key(turn, 4096, 0x9e39), turn);
		break;
	case XK_BENCH_RBTREE_LOOKUP:
		node = xk_rbtree_find(bench->rbtree, key);
		if (node)
			bench->sum += node->value;
		break;
	case XK_BENCH_RBTREE_NEXT:
		node = bench->node ? xk_rbtree_next(bench->node) : xk_rbtree_first(bench->rbtree, 0);
		bench->node = node;
		break;
	case XK_BENCH_RBTREE_REMOVE:
		bench->node = xk_null;
		bench->sum += xk_rbtree_remove(bench->rbtree, xk_bench_key(turn, 4096, 0x2d7));
		break;
	case XK_BENCH_SKIPLIST_INSERT:
		key = xk_bench_key(turn, 4096, 0x9e39);
		xk_skiplist_insert(bench->skiplist, key / 4, key);
		break;
	case XK_BENCH_SKIPLIST_RANK:
		bench->sum += xk_skiplist_rank(bench->skiplist, key / 4, key);
		break;
	case XK_BENCH_SKIPLIST_AT:
		item = xk_skiplist_at(bench->skiplist, key);
		if (item)
			bench->sum += item->key;
		break;
	case XK_BENCH_SKIPLIST_REMOVE:
		key = xk_bench_key(turn, 4096, 0x2d7);
		bench->sum += xk_skiplist_remove(bench->skiplist, key / 4, key);
		break;
	}
}

/* One turn. The compiler knows the operation, and so nothing is chosen when it is measured. */
xk_inline void xk_bench_turn(struct xk_bench *bench, enum xk_bench_operation operation, __u64 turn)
{
	struct xk_bench_object __heap *object;
	struct xk_lru_item __heap *used;
	struct xk_item __heap *found;
	struct xk_item __heap *item;

	switch (operation) {
	case XK_BENCH_LIST_PUSH:
		xk_list_push(bench->list, xk_bench_key(turn, 512, 0x9e37), turn);
		break;
	case XK_BENCH_LIST_LOOKUP:
		item = xk_list_find(bench->list, xk_bench_key(turn, 512, 0x1b3));
		if (item)
			bench->sum += item->value;
		break;
	case XK_BENCH_LIST_WALK:
		/* A key that is not there. */
		item = xk_list_find(bench->list, 512 + turn);
		if (item)
			bench->sum += item->value;
		break;
	case XK_BENCH_LIST_REMOVE:
		bench->sum += xk_list_remove(bench->list, xk_bench_key(turn, 512, 0x2d7));
		break;
	case XK_BENCH_HASH_INSERT:
	case XK_BENCH_HASH_UPDATE:
		xk_hash_set(bench->hash, xk_bench_key(turn, 4096, 0x9e39), turn);
		break;
	case XK_BENCH_HASH_LOOKUP:
		found = xk_hash_find(bench->hash, xk_bench_key(turn, 4096, 0x1b3));
		if (found)
			bench->sum += found->value;
		break;
	case XK_BENCH_HASH_REMOVE:
		bench->sum += xk_hash_remove(bench->hash, xk_bench_key(turn, 4096, 0x2d7));
		break;
	case XK_BENCH_LRU_SET:
		xk_lru_set(bench->lru, xk_bench_key(turn, 4096, 0x9e39), turn);
		break;
	case XK_BENCH_LRU_GET:
		used = xk_lru_get(bench->lru, xk_bench_key(turn, 4096, 0x1b3));
		if (used)
			bench->sum += used->item.value;
		break;
	case XK_BENCH_LRU_REMOVE:
		bench->sum += xk_lru_remove(bench->lru, xk_bench_key(turn, 4096, 0x2d7));
		break;
	case XK_BENCH_MALLOC:
		object = xk_malloc(sizeof(*object));
		if (!object)
			break;
		object->next = bench->objects;
		bench->objects = object;
		break;
	case XK_BENCH_FREE:
		object = bench->objects;
		if (!object)
			break;
		bench->objects = object->next;
		xk_free(object);
		break;
	default:
		xk_bench_ordered(bench, operation, turn);
	}
}

#if !defined(__BPF__)

#define XK_BENCH_FUNCTION(name, structure, operation, turns)			\
	xk_fn void xk_bench_##structure##_##operation(struct xk_bench *bench, __u64 turn)	\
	{									\
		xk_bench_turn(bench, XK_BENCH_##name, turn);			\
	}

XK_BENCH_EACH(XK_BENCH_FUNCTION)

#define XK_BENCH_ROW(name, structure, operation, turns)				\
	{ #structure, #operation, turns, xk_bench_##structure##_##operation },

static const struct {
	const char *structure;
	const char *operation;
	__u64 turns;
	void (*turn)(struct xk_bench *bench, __u64 turn);
} xk_bench_operations[] = { XK_BENCH_EACH(XK_BENCH_ROW) };

#endif

#endif
