/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A red-black tree of keys with values, in the order of the keys. Who changes a tree is alone with
 * it. A run that is ended in one of these functions has changed nothing: it may be ended while it
 * searches, and no longer when it changes something. Pointers to nodes stay valid until the node
 * itself is removed.
 */
#ifndef _XK_FLEX_RBTREE_H
#define _XK_FLEX_RBTREE_H

#include "base.h"

struct xk_rbtree_node {
	struct xk_rbtree_node __heap *parent;
	struct xk_rbtree_node __heap *child[2];	/* with smaller keys, and with larger ones */
	__u64 key;
	__u64 value;
	__u64 red;
};

struct xk_rbtree {
	struct xk_rbtree_node top;	/* the parent of the root, which is its first child */
	__u64 length;
};

/*
 * Rebalancing goes up from red node to red node, or from black node to black node. A tree with
 * less than 2^48 nodes has at most so many of them on a path.
 */
#define XK_RBTREE_CLIMB		48

/* An empty tree; NULL without memory. */
xk_fn struct xk_rbtree __heap *xk_rbtree_new(void)
{
	struct xk_rbtree __heap *tree = xk_malloc(sizeof(*tree));

	if (tree) {
		xk_zero(tree->top.parent);
		xk_zero(tree->top.child[0]);
		xk_zero(tree->top.child[1]);
		xk_zero(tree->top.red);
		xk_zero(tree->length);
	}
	return tree;
}

/*
 * The child on the side of this key. For an extension, to choose what is loaded costs more than to
 * load in two places.
 */
#define xk_rbtree_towards(here, key)					\
({									\
	struct xk_rbtree_node __heap *towards;				\
									\
	if ((here)->key < (key)) {					\
		towards = (here)->child[1];				\
		xk_opaque(towards);					\
	} else {							\
		towards = (here)->child[0];				\
	}								\
	towards;							\
})

/* The node with this key, or NULL. */
xk_inline struct xk_rbtree_node __heap *xk_rbtree_find(struct xk_rbtree __heap *tree, __u64 key)
{
	struct xk_rbtree_node __heap *node = tree->top.child[0];

	while (node && xk_here(node)->key != key)
		node = xk_rbtree_towards(xk_here(node), key);
	return node;
}

/* The first node whose key is at least this one, or NULL. */
xk_inline struct xk_rbtree_node __heap *xk_rbtree_first(struct xk_rbtree __heap *tree, __u64 key)
{
	struct xk_rbtree_node __heap *node = tree->top.child[0];
	struct xk_rbtree_node __heap *first = xk_any((struct xk_rbtree_node __heap *)xk_null);

	while (node) {
		if (node->key < key) {
			node = node->child[1];
		} else {
			first = node;
			xk_forget(first);
			node = node->child[0];
		}
	}
	return first;
}

/* The first node below this one. */
xk_inline struct xk_rbtree_node __heap *xk_rbtree_lowest(struct xk_rbtree_node __heap *node)
{
	while (node->child[0])
		node = node->child[0];
	return node;
}

/* The next node, or NULL. */
xk_inline struct xk_rbtree_node __heap *xk_rbtree_next(struct xk_rbtree_node __heap *node)
{
	if (node->child[1])
		return xk_rbtree_lowest(node->child[1]);
	while (node->parent->child[1] == node)
		node = node->parent;
	node = node->parent;
	/* The top has no parent. */
	return node->parent ? node : xk_null;
}

/* Which child of its parent it is. */
xk_inline __u64 xk_rbtree_side(struct xk_rbtree_node __heap *node)
{
	return node->parent->child[1] == node;
}

xk_inline int xk_rbtree_is_red(struct xk_rbtree_node __heap *node)
{
	return node && node->red;
}

/* Another node, or none, in the place of this one below its parent. */
xk_inline void xk_rbtree_replace(struct xk_rbtree_node __heap *node,
				 struct xk_rbtree_node __heap *other)
{
	node->parent->child[xk_rbtree_side(node)] = other;
	if (other)
		other->parent = node->parent;
}

/* Lowers a node to this side. Its child on the other side comes in its place. */
xk_fn void xk_rbtree_rotate(struct xk_rbtree_node __heap *node, __u64 side)
{
	struct xk_rbtree_node __heap *raised = node->child[!side];
	struct xk_rbtree_node __heap *between = raised->child[side];

	xk_rbtree_replace(node, raised);
	raised->child[side] = node;
	node->parent = raised;
	node->child[!side] = between;
	if (between)
		between->parent = node;
}

/* After a red node was added below a parent that may be red, too. */
xk_fn void xk_rbtree_added(struct xk_rbtree __heap *tree, struct xk_rbtree_node __heap *node)
{
	struct xk_rbtree_node __heap *parent = node->parent;
	struct xk_rbtree_node __heap *above;
	__u64 side;

	for (int turn = 0; turn < XK_RBTREE_CLIMB; turn++) {
		struct xk_rbtree_node __heap *uncle;

		parent = node->parent;
		if (!parent->red)
			break;
		/* The root is black: a red parent has a parent. */
		above = parent->parent;
		uncle = above->child[!xk_rbtree_side(parent)];
		if (!xk_rbtree_is_red(uncle))
			break;
		parent->red = 0;
		uncle->red = 0;
		above->red = 1;
		node = above;
	}
	if (parent->red) {
		above = parent->parent;
		side = xk_rbtree_side(parent);
		if (xk_rbtree_side(node) != side) {
			xk_rbtree_rotate(parent, side);
			parent = node;
		}
		above->red = 1;
		parent->red = 0;
		xk_rbtree_rotate(above, !side);
	}
	tree->top.child[0]->red = 0;
}

/* Whether the key has this value now: there was memory, or it was there. */
xk_fn int xk_rbtree_set(struct xk_rbtree __heap *tree, __u64 key, __u64 value)
{
	struct xk_rbtree_node __heap *parent = &tree->top;
	struct xk_rbtree_node __heap *node = parent->child[0];

	while (node && xk_here(node)->key != key) {
		parent = node;
		node = xk_rbtree_towards(xk_here(node), key);
	}
	if (node) {
		node->value = value;
		return 1;
	}
	node = xk_malloc(sizeof(*node));
	if (!node)
		return 0;
	node->parent = parent;
	xk_zero(node->child[0]);
	xk_zero(node->child[1]);
	node->key = key;
	node->value = value;
	node->red = 1;
	if (parent != &tree->top && parent->key < key)
		parent->child[1] = node;
	else
		parent->child[0] = node;
	tree->length++;
	xk_rbtree_added(tree, node);
	return 1;
}

/* After a black node was taken away below this parent, on this side, where nothing is now. */
xk_fn void xk_rbtree_taken(struct xk_rbtree_node __heap *parent, __u64 side)
{
	struct xk_rbtree_node __heap *other = xk_null;

	/* As long as the parent, the other child and its children are black. */
	for (int turn = 0; turn < XK_RBTREE_CLIMB; turn++) {
		if (!parent->parent)
			return;
		other = parent->child[!side];
		if (parent->red || other->red || xk_rbtree_is_red(other->child[0]) ||
		    xk_rbtree_is_red(other->child[1]))
			break;
		other->red = 1;
		side = xk_rbtree_side(parent);
		parent = parent->parent;
	}
	if (other->red) {
		other->red = 0;
		parent->red = 1;
		xk_rbtree_rotate(parent, side);
		other = parent->child[!side];
	}
	if (!xk_rbtree_is_red(other->child[!side])) {
		if (!xk_rbtree_is_red(other->child[side])) {
			/* The parent is red. */
			other->red = 1;
			parent->red = 0;
			return;
		}
		xk_rbtree_rotate(other, !side);
		other = parent->child[!side];
	}
	other->red = parent->red;
	parent->red = 0;
	other->child[!side]->red = 0;
	xk_rbtree_rotate(parent, side);
}

/* Removes a key; whether it was there. */
xk_fn int xk_rbtree_remove(struct xk_rbtree __heap *tree, __u64 key)
{
	struct xk_rbtree_node __heap *node = xk_rbtree_find(tree, key);
	struct xk_rbtree_node __heap *last = node;
	struct xk_rbtree_node __heap *below;
	struct xk_rbtree_node __heap *parent;
	__u64 side, red;

	if (!node)
		return 0;
	/* The next node, which has no smaller child, comes in the place of one with two children. */
	if (node->child[0] && node->child[1])
		last = xk_rbtree_lowest(node->child[1]);
	below = last->child[0] ? last->child[0] : last->child[1];
	parent = last->parent;
	side = xk_rbtree_side(last);
	red = last->red;
	xk_rbtree_replace(last, below);
	if (last != node) {
		if (parent == node)
			parent = last;
		last->red = node->red;
		last->child[0] = node->child[0];
		last->child[0]->parent = last;
		last->child[1] = node->child[1];
		if (last->child[1])
			last->child[1]->parent = last;
		xk_rbtree_replace(node, last);
	}
	tree->length--;
	xk_free(node);
	/* A single child is red, and the node above it was black. */
	if (below)
		below->red = 0;
	else if (!red)
		xk_rbtree_taken(parent, side);
	return 1;
}

#endif
