/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A list of keys with values, the newest first. A key may be there several times. Who changes a
 * list is alone with it. A run that is ended in one of these functions has changed nothing.
 */
#ifndef _XK_FLEX_LIST_H
#define _XK_FLEX_LIST_H

#include "chain.h"

struct xk_list {
	struct xk_item __heap *first;
	__u64 length;
};

/* The newest item with this key, or NULL. */
xk_inline struct xk_item __heap *xk_list_find(struct xk_list __heap *list, __u64 key)
{
	return xk_chain_find(list->first, key);
}

/* Whether there was memory. */
xk_fn int xk_list_push(struct xk_list __heap *list, __u64 key, __u64 value)
{
	int pushed = xk_chain_push(&list->first, key, value);

	list->length += pushed;
	return pushed;
}

/* Removes the newest item with this key; whether there was one. */
xk_fn int xk_list_remove(struct xk_list __heap *list, __u64 key)
{
	int removed = xk_chain_remove(&list->first, key);

	list->length -= removed;
	return removed;
}

#endif
