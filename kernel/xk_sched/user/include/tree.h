/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ordered trees, with the interface of the kernel's red-black trees. These are not balanced: the
 * order is the same.
 */
#ifndef _XK_USER_TREE_H
#define _XK_USER_TREE_H

struct rb_node {
	struct rb_node *parent, *rb_left, *rb_right;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct rb_root_cached {
	struct rb_root rb_root;
};

#define RB_ROOT_CACHED ((struct rb_root_cached){})
#define rb_entry container_of

static inline struct rb_node *xk_user_leftmost(struct rb_node *node)
{
	while (node && node->rb_left)
		node = node->rb_left;
	return node;
}

static inline struct rb_node *rb_first_cached(const struct rb_root_cached *tree)
{
	return xk_user_leftmost(tree->rb_root.rb_node);
}

static inline struct rb_node *rb_next(const struct rb_node *node)
{
	if (node->rb_right)
		return xk_user_leftmost(node->rb_right);
	while (node->parent && node == node->parent->rb_right)
		node = node->parent;
	return node->parent;
}

static inline void rb_link_node(struct rb_node *node, struct rb_node *parent,
				struct rb_node **link)
{
	node->parent = parent;
	node->rb_left = NULL;
	node->rb_right = NULL;
	*link = node;
}

/* It is linked already. */
static inline void rb_insert_color_cached(struct rb_node *node, struct rb_root_cached *tree,
					  bool leftmost)
{
}

/* Puts `other`, which may be NULL, in the place of `node`. */
static inline void xk_user_replace(struct rb_node *node, struct rb_node *other,
				   struct rb_root *root)
{
	if (!node->parent)
		root->rb_node = other;
	else if (node->parent->rb_left == node)
		node->parent->rb_left = other;
	else
		node->parent->rb_right = other;
	if (other)
		other->parent = node->parent;
}

static inline void rb_erase_cached(struct rb_node *node, struct rb_root_cached *tree)
{
	struct rb_root *root = &tree->rb_root;
	struct rb_node *next;

	if (!node->rb_left || !node->rb_right) {
		xk_user_replace(node, node->rb_left ?: node->rb_right, root);
		return;
	}
	next = xk_user_leftmost(node->rb_right);
	if (next->parent != node) {
		xk_user_replace(next, next->rb_right, root);
		next->rb_right = node->rb_right;
		next->rb_right->parent = next;
	}
	xk_user_replace(node, next, root);
	next->rb_left = node->rb_left;
	next->rb_left->parent = next;
}

#endif /* _XK_USER_TREE_H */
