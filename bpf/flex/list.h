/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A list of keys with values, the newest first. A key may be there several times. Who changes a
 * list is alone with it. A run that is ended in one of these functions has changed nothing.
 */
#ifndef _XK_FLEX_LIST_H
#define _XK_FLEX_LIST_H

#include "base.h"

struct xk_list_item {
	struct xk_list_item __heap *next;
	__u64 key;
	__u64 value;
};

struct xk_list {
	struct xk_list_item __heap *first;
	__u64 length;
};

/* The newest item with this key, or NULL. */
xk_fn struct xk_list_item __heap *xk_list_find(struct xk_list __heap *list, __u64 key)
{
	struct xk_list_item __heap *item;

	for (item = list->first; item; item = item->next) {
		if (item->key == key)
			break;
	}
	return item;
}

/* Whether there was memory. */
xk_fn int xk_list_push(struct xk_list __heap *list, __u64 key, __u64 value)
{
	struct xk_list_item __heap *item = xk_malloc(sizeof(*item));

	if (!item)
		return 0;
	item->next = list->first;
	item->key = key;
	item->value = value;
	list->first = item;
	list->length++;
	return 1;
}

/* Removes the newest item with this key; whether there was one. */
xk_fn int xk_list_remove(struct xk_list __heap *list, __u64 key)
{
	struct xk_list_item __heap *item;
	struct xk_list_item __heap *before = (struct xk_list_item __heap *)0;

	for (item = list->first; item; item = item->next) {
		if (item->key == key)
			break;
		before = item;
	}
	if (!item)
		return 0;
	if (before)
		before->next = item->next;
	else
		list->first = item->next;
	list->length--;
	xk_free(item);
	return 1;
}

#endif
