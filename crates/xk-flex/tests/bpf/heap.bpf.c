// SPDX-License-Identifier: GPL-2.0-only
/* A heap and structures in it, used as user space says; and runs that use the heap side by side. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "xk_flex.bpf.h"
#include "flex/hash.h"
#include "flex/list.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(16384);

enum operation { ALLOCATE, FREE, CLEAR, NEW, SET, GET, REMOVE, PUSH, FIND, TAKE };

/* What user space asks for, and what came of it. */
volatile struct {
	__u64 operation;
	__u64 key;
	__u64 value;
} asked;
__u64 answer;

struct xk_hash __heap *hash;
struct xk_list __heap *list;

/* Returns 1 and whether it succeeded. A run that is ended returns 0. */
SEC("tc")
int operate(struct __sk_buff *skb)
{
	__u64 key = asked.key, value = asked.value, done = 1;
	struct xk_item __heap *found;
	struct xk_item __heap *item;

	XK_USE_HEAP();
	switch (asked.operation) {
	case ALLOCATE:
		answer = (__u64)xk_malloc(key);
		break;
	case FREE:
		xk_free((void __heap *)key);
		break;
	case CLEAR:
		answer = (__u64)xk_calloc(key, value);
		break;
	case NEW:
		hash = xk_hash_new(key);
		list = xk_calloc(1, sizeof(*list));
		answer = (__u64)hash;
		done = hash && list;
		break;
	case SET:
		done = xk_hash_set(hash, key, value);
		break;
	case GET:
		found = xk_hash_find(hash, key);
		done = !!found;
		answer = found ? found->value : 0;
		break;
	case REMOVE:
		done = xk_hash_remove(hash, key);
		break;
	case PUSH:
		done = xk_list_push(list, key, value);
		break;
	case FIND:
		item = xk_list_find(list, key);
		done = !!item;
		answer = item ? item->value : 0;
		break;
	case TAKE:
		done = xk_list_remove(list, key);
		break;
	}
	return done ? 3 : 1;
}

/* Objects that each run marks as its own. */
#define OBJECTS	12
__u64 runs[2], taken[2], wrong, above;
/* A run is under way on this CPU. */
volatile __u32 inside[2];

/* An object that a run has taken. */
struct own {
	__u64 mark;
	struct own __heap *next;
	__u64 more[];
};

/* Takes objects of several sizes, looks whether somebody else has them, and gives them back. */
static __always_inline void side_by_side(__u64 mark, __u64 number)
{
	struct own __heap *all = (struct own __heap *)0;
	__u64 done = 0;

	for (int i = 0; i < OBJECTS; i++) {
		struct own __heap *own = xk_malloc(16 + 40 * (i % 3));

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
		done++;
		xk_free(own);
	}
	__sync_fetch_and_add(&taken[number], done);
	__sync_fetch_and_add(&runs[number], 1);
}

SEC("tc")
int beside(struct __sk_buff *skb)
{
	__u32 cpu = bpf_get_smp_processor_id() & 1;

	inside[cpu] = 1;
	/* Another one in each run. */
	side_by_side(bpf_get_prandom_u32() | 1ull << 40, 0);
	inside[cpu] = 0;
	return 0;
}

/* Interrupts the others, on each CPU. */
SEC("?raw_tp/local_timer_entry")
int interrupts(void *ctx)
{
	if (inside[bpf_get_smp_processor_id() & 1])
		__sync_fetch_and_add(&above, 1);
	side_by_side(bpf_get_prandom_u32() | 2ull << 40, 1);
	return 0;
}
