/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A radix tree of keys with values, four bits of the key in each node. Nodes that would have one
 * child only are left out. So each new key needs at most two new nodes, and sparse keys need
 * one each. Who changes a tree is alone with it. A run that is ended in one of these functions has
 * changed nothing.
 */
#ifndef _XK_FLEX_RADIX_H
#define _XK_FLEX_RADIX_H

#include "base.h"

#define XK_RADIX_BITS	4

struct xk_radix_node {
	__u64 prefix;		/* of all keys below: their bits above this node's */
	__u64 shift;		/* of this node's bits; 0 in the lowest nodes */
	__u64 used;		/* a bit for each slot */
	__u64 slots[1 << XK_RADIX_BITS];	/* nodes; values in the lowest nodes */
};

struct xk_radix {
	__u64 root;
	__u64 length;
};

/* An empty tree; NULL without memory. */
xk_fn struct xk_radix __heap *xk_radix_new(void)
{
	struct xk_radix __heap *radix = xk_malloc(sizeof(*radix));

	if (radix) {
		xk_zero(radix->root);
		xk_zero(radix->length);
	}
	return radix;
}

xk_inline int xk_radix_is_below(struct xk_radix_node __heap *node, __u64 key)
{
	return key >> node->shift >> XK_RADIX_BITS == node->prefix;
}

/* The slot of a key that is below the node. */
xk_inline __u64 xk_radix_slot(struct xk_radix_node __heap *node, __u64 key)
{
	return key >> node->shift & ((1 << XK_RADIX_BITS) - 1);
}

/* Where the value of a key is, or NULL. */
xk_inline __u64 __heap *xk_radix_find(struct xk_radix __heap *radix, __u64 key)
{
	struct xk_radix_node __heap *node = (struct xk_radix_node __heap *)radix->root;

	while (node && xk_radix_is_below(node, key)) {
		__u64 slot = xk_radix_slot(node, key);

		if (!(node->used >> slot & 1))
			break;
		if (!node->shift)
			return &node->slots[slot];
		node = (struct xk_radix_node __heap *)node->slots[slot];
	}
	return xk_null;
}

/* A node with one slot in use; NULL without memory. */
xk_fn struct xk_radix_node __heap *xk_radix_new_node(__u64 shift, __u64 key, __u64 content)
{
	struct xk_radix_node __heap *node = xk_malloc(sizeof(*node));
	__u64 slot;

	if (node) {
		node->shift = shift;
		node->prefix = key >> shift >> XK_RADIX_BITS;
		slot = xk_radix_slot(node, key);
		node->used = 1ull << slot;
		node->slots[slot] = content;
	}
	return node;
}

xk_inline void xk_radix_add(struct xk_radix_node __heap *node, __u64 key, __u64 content)
{
	__u64 slot = xk_radix_slot(node, key);

	node->used |= 1ull << slot;
	node->slots[slot] = content;
}

/* A node for the keys below another node and for this key, which has a node; 0 without memory. */
xk_inline __u64 xk_radix_fork(struct xk_radix_node __heap *node, __u64 key,
			      struct xk_radix_node __heap *lowest)
{
	__u64 other = node->prefix << XK_RADIX_BITS << node->shift;
	__u64 shift = (63 - __builtin_clzll(key ^ other)) / XK_RADIX_BITS * XK_RADIX_BITS;
	struct xk_radix_node __heap *fork = xk_radix_new_node(shift, other, (__u64)node);

	if (fork)
		xk_radix_add(fork, key, (__u64)lowest);
	return (__u64)fork;
}

/* Whether the key has this value now: there was memory, or it was there. */
xk_fn int xk_radix_set(struct xk_radix __heap *radix, __u64 key, __u64 value)
{
	__u64 __heap *place = &radix->root;
	struct xk_radix_node __heap *lowest, *node;
	__u64 fork = 0;

	for (;;) {
		node = (struct xk_radix_node __heap *)*place;
		if (!node || !xk_radix_is_below(node, key) || !node->shift ||
		    !(node->used >> xk_radix_slot(node, key) & 1))
			break;
		place = &node->slots[xk_radix_slot(node, key)];
	}
	if (node && xk_radix_is_below(node, key) && !node->shift) {
		radix->length += !(node->used >> xk_radix_slot(node, key) & 1);
		xk_radix_add(node, key, value);
		return 1;
	}
	lowest = xk_radix_new_node(0, key, value);
	if (!lowest)
		return 0;
	if (!node) {
		*place = (__u64)lowest;
	} else if (xk_radix_is_below(node, key)) {
		xk_radix_add(node, key, (__u64)lowest);
	} else {
		fork = xk_radix_fork(node, key, lowest);
		if (!fork) {
			xk_free(lowest);
			return 0;
		}
		*place = fork;
	}
	radix->length++;
	return 1;
}

/* Removes a key; whether it was there. */
xk_fn int xk_radix_remove(struct xk_radix __heap *radix, __u64 key)
{
	struct xk_radix_node __heap *node = (struct xk_radix_node __heap *)radix->root;
	struct xk_radix_node __heap *above = xk_null;
	__u64 __heap *place = &radix->root;	/* of the node, */
	__u64 __heap *before = xk_null;		/* and of the one above it */

	for (;;) {
		if (!node || !xk_radix_is_below(node, key) ||
		    !(node->used >> xk_radix_slot(node, key) & 1))
			return 0;
		if (!node->shift)
			break;
		above = node;
		before = place;
		place = &node->slots[xk_radix_slot(node, key)];
		node = (struct xk_radix_node __heap *)*place;
	}
	radix->length--;
	node->used &= ~(1ull << xk_radix_slot(node, key));
	if (node->used)
		return 1;
	xk_free(node);
	if (!above) {
		*place = 0;
		return 1;
	}
	above->used &= ~(1ull << xk_radix_slot(above, key));
	/* Of two children, the other one comes in the place of both. */
	if (!(above->used & (above->used - 1))) {
		*before = above->slots[__builtin_ctzll(above->used)];
		xk_free(above);
	}
	return 1;
}

#endif
