/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Items one behind the other, each with a key and a value: the list, and a bucket of the hash
 * table. A chain is the pointer to its first item.
 */
#ifndef _XK_FLEX_CHAIN_H
#define _XK_FLEX_CHAIN_H

#include "base.h"

struct xk_item {
	struct xk_item __heap *next;
	__u64 key;
	__u64 value;
};

/* The first item with this key from here on, or NULL. */
xk_inline struct xk_item __heap *xk_chain_find(struct xk_item __heap *item, __u64 key)
{
	struct xk_item *here;

	for (; item; item = here->next) {
		here = xk_here(item);
		if (here->key == key)
			break;
	}
	return item;
}

/* The pointer to the first item with this key; if there is none, the last pointer, which is NULL. */
xk_inline struct xk_item __heap * __heap *
xk_chain_place(struct xk_item __heap * __heap *place, __u64 key)
{
	struct xk_item __heap *item = *place;
	struct xk_item *here;

	while (item) {
		here = xk_here(item);
		if (here->key == key)
			break;
		place = &item->next;
		item = here->next;
	}
	return place;
}

/* Puts a new item first. Whether there was memory. */
xk_inline int xk_chain_push(struct xk_item __heap * __heap *place, __u64 key, __u64 value)
{
	struct xk_item __heap *item = xk_malloc(sizeof(*item));

	if (!item)
		return 0;
	item->next = *place;
	item->key = key;
	item->value = value;
	*place = item;
	return 1;
}

/* Removes the first item with this key; whether there was one. */
xk_inline int xk_chain_remove(struct xk_item __heap * __heap *place, __u64 key)
{
	struct xk_item __heap *item;

	place = xk_chain_place(place, key);
	item = *place;
	if (!item)
		return 0;
	*place = item->next;
	xk_free(item);
	return 1;
}

#endif
