// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs that are interrupted at the worst places: between reading a word of the heap and exchanging
 * it. Whoever interrupts takes objects, gives some back, and keeps one for a while.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "xk_flex.bpf.h"

#define XK_HEAP_BETWEEN(word, units)	between(word, units)
static void between(__u64 __attribute__((address_space(1))) *word, __u64 units);

#include "flex/base.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(16384);

#define OBJECTS	5
#define OWN	(1ull << 40)
#define KEPT	(2ull << 40)

/* Of one run in so many that could be interrupted. 0: none. */
volatile __u32 odds;
__u64 runs, interruptions, wrong;
/* What the one that interrupts keeps, its list, and the mark in it. */
__u64 kept, kept_list, kept_mark;

/* What the heap does, at once: nothing interrupts this. */
static __always_inline __u64 pop(__u64 __heap *list)
{
	__u64 word = *list, object = XK_LIST_OBJECT(word), length = XK_LIST_LENGTH(word);

	if (object)
		*list = XK_LIST(XK_LIST_OBJECT(*(__u32 __heap *)xk_heap_at(object << 4)),
				length - !!length, word);
	return object << 4;
}

static __always_inline void push(__u64 __heap *list, __u64 offset)
{
	__u64 word = *list;

	*(__u32 __heap *)xk_heap_at(offset) = XK_LIST_OBJECT(word);
	*list = XK_LIST(offset >> 4, XK_LIST_LENGTH(word), word);
}

static __always_inline void keep(__u64 __heap *list, __u64 offset)
{
	kept = offset;
	kept_list = (__u64)list;
	kept_mark = KEPT | bpf_get_prandom_u32();
	*(__u64 __heap *)xk_heap_at(offset) = kept_mark;
}

static __noinline void between(__u64 __heap *word, __u64 units)
{
	__u64 first, second;

	if (!odds || bpf_get_prandom_u32() % odds)
		return;
	__sync_fetch_and_add(&interruptions, 1);
	if (kept) {
		if (*(__u64 __heap *)xk_heap_at(kept) != kept_mark)
			__sync_fetch_and_add(&wrong, 1);
		push((__u64 __heap *)kept_list, kept);
		kept = 0;
		return;
	}
	if (units) {
		/* The rest of a span: takes the next object, if there is one. */
		if ((__u32)*word + units <= *word >> 32) {
			first = (__u64)(__u32)*word << 4;
			*word += units;
			keep(xk_heap_cpu()->lists, first);
		}
		return;
	}
	/* The first object is the same one again, and the one behind it is not. */
	first = pop(word);
	if (!first)
		return;
	second = pop(word);
	push(word, first);
	if (second)
		keep(word, second);
}

struct own {
	__u64 mark;
	struct own __heap *next;
};

SEC("tc")
int interrupted(struct __sk_buff *skb)
{
	__u64 mark = OWN | bpf_get_prandom_u32();
	struct own __heap *all = (struct own __heap *)0;

	for (int i = 0; i < OBJECTS; i++) {
		struct own __heap *own = xk_malloc(sizeof(*own));

		if (!own)
			continue;
		own->mark = mark;
		own->next = all;
		all = own;
	}
	for (int i = 0; i < OBJECTS && all; i++) {
		struct own __heap *own = all;

		if (*(volatile __u64 __heap *)&own->mark != mark)
			__sync_fetch_and_add(&wrong, 1);
		all = own->next;
		xk_free(own);
	}
	__sync_fetch_and_add(&runs, 1);
	return 0;
}
