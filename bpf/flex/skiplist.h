/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A skip list of items in the order of their scores, and of their keys where scores are equal, as
 * a sorted set of Redis. Each link knows how many items it skips, so an item's rank and the item of
 * a rank are found in logarithmic time on average. Who changes a list is alone with it. A run that
 * is ended in one of these functions has changed nothing. Pointers to items stay valid until the
 * item itself is removed.
 */
#ifndef _XK_FLEX_SKIPLIST_H
#define _XK_FLEX_SKIPLIST_H

#include "base.h"

/*
 * Whether a key comes before another one. Who includes this file may define another order, for
 * example of strings whose addresses are the keys. The key 0 must come before all.
 */
#ifndef XK_SKIPLIST_LESS
#define XK_SKIPLIST_LESS(key, other)	((key) < (other))
#endif

/* One item in four has a level more: so many levels are enough for 2^32 items. */
#define XK_SKIPLIST_LEVELS	16

struct xk_skiplist_link {
	struct xk_skiplist_item __heap *next;
	__u64 span;		/* from the item to the next one; if there is none, to the last one */
};

struct xk_skiplist_item {
	__u64 score;
	__u64 key;
	struct xk_skiplist_link links[];	/* one for each of its levels, the lowest first */
};

/* Where a search went down from a level. */
struct xk_skiplist_turn {
	struct xk_skiplist_item __heap *item;
	__u64 rank;		/* of the item that follows it */
};

_Static_assert(sizeof(struct xk_skiplist_turn) == sizeof(struct xk_skiplist_link),
	       "a search has one offset for both");

struct xk_skiplist {
	__u64 length;
	__u64 levels;		/* that are in use, at least one */
	__u64 random;
	/* Of the last search for a change: the item before, the rank, and the turns. */
	struct xk_skiplist_item __heap *before;
	__u64 rank;
	struct xk_skiplist_turn turns[XK_SKIPLIST_LEVELS];
	struct xk_skiplist_item head;	/* with all levels */
};

/* An empty list; NULL without memory. The seed determines the numbers of levels. */
xk_fn struct xk_skiplist __heap *xk_skiplist_new(__u64 seed)
{
	struct xk_skiplist __heap *list = xk_malloc(sizeof(*list) + XK_SKIPLIST_LEVELS *
						    sizeof(list->head.links[0]));

	if (list) {
		xk_zero(list->length);
		list->levels = 1;
		list->random = seed ? seed : 0x9e3779b97f4a7c15ull;
		xk_zero(list->head.links[0].next);
		xk_zero(list->head.links[0].span);
	}
	return list;
}

/* The link of a level. Levels are counted in bytes here, so that a search does not multiply. */
xk_inline struct xk_skiplist_link __heap *xk_skiplist_link(struct xk_skiplist_item __heap *item,
							   __u64 level)
{
	return (struct xk_skiplist_link __heap *)((__u64)(item->links - 1) + level);
}

/*
 * The last item before this score and key, or the head; and the rank that an item of this score and
 * key has, or would have. Notes where it went down, if the list is to be changed.
 */
xk_inline struct xk_skiplist_item __heap *
xk_skiplist_search(struct xk_skiplist __heap *list, __u64 score, __u64 key,
		   struct xk_skiplist_turn __heap *turns, __u64 *rank)
{
	struct xk_skiplist_item __heap *item = &list->head;
	__u64 level = list->levels * sizeof(item->links[0]), passed = xk_any(0ull);

	while (level) {
		struct xk_skiplist_link *link = xk_here(xk_skiplist_link(item, level));
		struct xk_skiplist_item __heap *next = link->next;
		struct xk_skiplist_item *here = xk_here(next);

		if (next && (here->score < score ||
			     (here->score == score && XK_SKIPLIST_LESS(here->key, key)))) {
			passed += link->span;
			item = next;
			continue;
		}
		level -= sizeof(item->links[0]);
		if (turns) {
			struct xk_skiplist_turn *turn =
				xk_here((struct xk_skiplist_turn __heap *)((__u64)turns + level));

			turn->item = item;
			turn->rank = passed;
		}
	}
	*rank = passed;
	return item;
}

/* The first item whose score is at least this one, or NULL. */
xk_fn struct xk_skiplist_item __heap *xk_skiplist_first(struct xk_skiplist __heap *list,
							__u64 score)
{
	__u64 rank;

	return xk_skiplist_search(list, score, 0, xk_null, &rank)->links[0].next;
}

/* The rank of an item, from 0 on; the length of the list if there is no such item. */
xk_inline __u64 xk_skiplist_rank(struct xk_skiplist __heap *list, __u64 score, __u64 key)
{
	struct xk_skiplist_item __heap *item;
	__u64 rank;

	item = xk_skiplist_search(list, score, key, xk_null, &rank)->links[0].next;
	return item && item->score == score && item->key == key ? rank : list->length;
}

/* The item of a rank, or NULL. */
xk_inline struct xk_skiplist_item __heap *
xk_skiplist_at(struct xk_skiplist __heap *list, __u64 rank)
{
	struct xk_skiplist_item __heap *item = &list->head;
	__u64 level = list->levels * sizeof(item->links[0]), left = rank + 1;

	if (rank >= list->length)
		return xk_null;
	while (left) {
		struct xk_skiplist_link *link = xk_here(xk_skiplist_link(item, level));
		struct xk_skiplist_item __heap *next = link->next;

		if (next && link->span <= left) {
			left -= link->span;
			item = next;
		} else {
			level -= sizeof(item->links[0]);
		}
	}
	return item;
}

/* The number of levels of the next item. */
xk_inline __u64 xk_skiplist_levels(struct xk_skiplist __heap *list)
{
	__u64 random = list->random;

	/* Marsaglia's xorshift. */
	random ^= random << 13;
	random ^= random >> 7;
	random ^= random << 17;
	list->random = random;
	/* Every fourth number ends with two zeros, every sixteenth with four, and so on. */
	return 1 + __builtin_ctzll(random | 1ull << (2 * XK_SKIPLIST_LEVELS - 2)) / 2;
}

/*
 * Searches the place of a score and key, for one of the next two functions. They are apart for
 * programs that have one search for all that they do.
 */
xk_fn int xk_skiplist_seek(struct xk_skiplist __heap *list, __u64 score, __u64 key)
{
	__u64 rank;

	list->before = xk_skiplist_search(list, score, key, list->turns, &rank);
	list->rank = rank;
	return 0;
}

/* Puts an item into the place that was sought: 1 if it is there now, 0 without memory. */
xk_change int xk_skiplist_insert_sought(__u64 of, __u64 score, __u64 key)
{
	struct xk_skiplist __heap *list = (struct xk_skiplist __heap *)of;
	struct xk_skiplist_item __heap *item;
	__u64 levels;

	xk_use_heap();
	item = list->before->links[0].next;
	if (item && item->score == score && item->key == key)
		return 1;
	levels = xk_skiplist_levels(list);
	item = xk_malloc(sizeof(*item) + levels * sizeof(item->links[0]));
	if (!item)
		return 0;
	item->score = score;
	item->key = key;
	for (__u32 level = 0; level < XK_SKIPLIST_LEVELS; level++) {
		struct xk_skiplist_turn __heap *turn = &list->turns[level];
		struct xk_skiplist_link __heap *link;
		__u64 before;

		if (level >= list->levels) {
			if (level >= levels)
				break;
			list->levels = level + 1;
			turn->item = &list->head;
			turn->rank = 0;
			list->head.links[level].next = xk_null;
			list->head.links[level].span = list->length;
		}
		link = &turn->item->links[level];
		if (level >= levels) {
			link->span++;
			continue;
		}
		before = list->rank - turn->rank;
		item->links[level].next = link->next;
		item->links[level].span = link->span - before;
		link->next = item;
		link->span = before + 1;
	}
	list->length++;
	return 1;
}

/* Removes the item that was sought; whether it was there. */
xk_change int xk_skiplist_remove_sought(__u64 of, __u64 score, __u64 key)
{
	struct xk_skiplist __heap *list = (struct xk_skiplist __heap *)of;
	struct xk_skiplist_item __heap *item;
	__u64 levels = 1;

	xk_use_heap();
	item = list->before->links[0].next;
	if (!item || item->score != score || item->key != key)
		return 0;
	for (__u32 level = 0; level < XK_SKIPLIST_LEVELS; level++) {
		struct xk_skiplist_link __heap *link;

		if (level >= list->levels)
			break;
		link = &list->turns[level].item->links[level];
		if (link->next == item) {
			link->next = item->links[level].next;
			link->span += item->links[level].span;
		}
		link->span--;
		if (list->head.links[level].next)
			levels = level + 1;
	}
	list->levels = levels;
	list->length--;
	xk_free(item);
	return 1;
}

/* Whether the item is there now: there was memory, or it was there. */
xk_fn int xk_skiplist_insert(struct xk_skiplist __heap *list, __u64 score, __u64 key)
{
	xk_skiplist_seek(list, score, key);
	return xk_skiplist_insert_sought((__u64)list, score, key);
}

/* Removes an item; whether it was there. */
xk_fn int xk_skiplist_remove(struct xk_skiplist __heap *list, __u64 score, __u64 key)
{
	xk_skiplist_seek(list, score, key);
	return xk_skiplist_remove_sought((__u64)list, score, key);
}

#endif
