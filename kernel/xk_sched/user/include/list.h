/* SPDX-License-Identifier: GPL-2.0-only */
/* Lists, as far as they are used. */
#ifndef _XK_USER_LIST_H
#define _XK_USER_LIST_H

struct list_head {
	struct list_head *next, *prev;
};

struct hlist_node {
	struct hlist_node *next;
};

struct rcu_head {
	struct rcu_head *next;
};

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list;
	list->prev = list;
}

static inline void list_add(struct list_head *node, struct list_head *after)
{
	node->next = after->next;
	node->prev = after;
	after->next->prev = node;
	after->next = node;
}

static inline void list_add_tail(struct list_head *node, struct list_head *list)
{
	list_add(node, list->prev);
}

static inline void list_del(struct list_head *node)
{
	node->next->prev = node->prev;
	node->prev->next = node->next;
	node->next = NULL;
	node->prev = NULL;
}

static inline void list_move_tail(struct list_head *node, struct list_head *list)
{
	list_del(node);
	list_add_tail(node, list);
}

static inline bool list_empty(const struct list_head *list)
{
	return list->next == list;
}

static inline bool list_is_last(const struct list_head *node, const struct list_head *list)
{
	return node->next == list;
}

#define list_entry container_of
#define list_next_entry(position, member) \
	list_entry((position)->member.next, __typeof__(*(position)), member)
#define list_first_entry_or_null(list, type, member) \
	(list_empty(list) ? NULL : list_entry((list)->next, type, member))
#define list_for_each_entry(position, list, member)				\
	for ((position) = list_entry((list)->next, __typeof__(*(position)), member); \
	     &(position)->member != (list);					\
	     (position) = list_next_entry(position, member))
#define list_for_each_entry_reverse(position, list, member)			\
	for ((position) = list_entry((list)->prev, __typeof__(*(position)), member); \
	     &(position)->member != (list);					\
	     (position) = list_entry((position)->member.prev, __typeof__(*(position)), member))

#endif /* _XK_USER_LIST_H */
