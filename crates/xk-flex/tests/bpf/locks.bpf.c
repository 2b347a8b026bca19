// SPDX-License-Identifier: GPL-2.0-only
/* Runs that hold locks of the heap, wait for them, and are ended meanwhile. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "xk_flex.bpf.h"
#include "flex/hash.h"
#include "flex/lock.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(16384);

#define LOCKS	10

/* What user space and programs share. */
struct shared {
	struct xk_lock locks[LOCKS];
	struct xk_rwlock both;
	__u64 counter;
};

struct shared __heap *shared;
struct xk_hash __heap *hash;
__u64 address, reached, above, wrong;
volatile __u64 never, key, value, turns;
/* Programs that hold their first lock. */
volatile __u64 first_of[2];

static __always_inline void forever(void)
{
	__u64 at = 0;

	while (at != never - 1)
		at += 2;
}

static __noinline int forever_elsewhere(int depth)
{
	if (depth)
		forever();
	return depth;
}

SEC("tc")
int prepare(struct __sk_buff *skb)
{
	XK_USE_HEAP();
	if (!shared)
		shared = xk_calloc(1, sizeof(*shared));
	if (!hash)
		hash = xk_hash_new(4);
	address = (__u64)shared;
	return shared && hash;
}

static __noinline void pause(void)
{
	for (__u64 at = 0; at < (bpf_get_prandom_u32() & 31); at++)
		asm volatile("" : "+r"(at));
}

/* Reads, and writes what it has read a little later. */
static __always_inline void count(void)
{
	__u64 counter = *(volatile __u64 __heap *)&shared->counter;

	pause();
	*(volatile __u64 __heap *)&shared->counter = counter + 1;
}

SEC("tc")
int counts(struct __sk_buff *skb)
{
	xk_lock(&shared->locks[0]);
	count();
	xk_unlock(&shared->locks[0]);
	return 7;
}

SEC("tc")
int writes(struct __sk_buff *skb)
{
	xk_write_lock(&shared->both);
	count();
	xk_write_unlock(&shared->both);
	return 7;
}

/* Reads twice what nobody may change meanwhile. */
SEC("tc")
int reads(struct __sk_buff *skb)
{
	__u64 counter;

	xk_read_lock(&shared->both);
	counter = *(volatile __u64 __heap *)&shared->counter;
	pause();
	if (counter != *(volatile __u64 __heap *)&shared->counter)
		__sync_fetch_and_add(&wrong, 1);
	xk_read_unlock(&shared->both);
	return 7;
}

/* Each takes something and is ended in a loop. */
SEC("tc")
int holds_one(struct __sk_buff *skb)
{
	xk_lock(&shared->locks[0]);
	forever();
	xk_unlock(&shared->locks[0]);
	return 7;
}

SEC("tc")
int holds_in_call(struct __sk_buff *skb)
{
	xk_lock(&shared->locks[0]);
	xk_lock(&shared->locks[1]);
	forever_elsewhere(3);
	xk_unlock(&shared->locks[0]);
	forever_elsewhere(0);
	xk_unlock(&shared->locks[1]);
	return 7;
}

/* For its caller. */
static __noinline int take_two(int first)
{
	xk_lock(&shared->locks[first % LOCKS]);
	return xk_trylock(&shared->locks[(first + 1) % LOCKS]);
}

SEC("tc")
int holds_what_a_call_took(struct __sk_buff *skb)
{
	if (!take_two(2))
		return 1;
	forever();
	xk_unlock(&shared->locks[2]);
	xk_unlock(&shared->locks[3]);
	return 7;
}

SEC("tc")
int holds_reader(struct __sk_buff *skb)
{
	xk_read_lock(&shared->both);
	forever();
	xk_read_unlock(&shared->both);
	return 7;
}

SEC("tc")
int holds_writer(struct __sk_buff *skb)
{
	xk_lock(&shared->locks[1]);
	xk_write_lock(&shared->both);
	forever();
	xk_write_unlock(&shared->both);
	xk_unlock(&shared->locks[1]);
	return 7;
}

/* Waits for a lock with another one held. */
SEC("tc")
int waits(struct __sk_buff *skb)
{
	xk_lock(&shared->locks[1]);
	xk_lock(&shared->locks[0]);
	reached++;
	xk_unlock(&shared->locks[0]);
	xk_unlock(&shared->locks[1]);
	return 7;
}

SEC("tc")
int waits_to_write(struct __sk_buff *skb)
{
	xk_write_lock(&shared->both);
	reached++;
	xk_write_unlock(&shared->both);
	return 7;
}

SEC("tc")
int waits_to_read(struct __sk_buff *skb)
{
	xk_read_lock(&shared->both);
	reached++;
	xk_read_unlock(&shared->both);
	return 7;
}

SEC("tc")
int waits_for_itself(struct __sk_buff *skb)
{
	xk_lock(&shared->locks[0]);
	xk_lock(&shared->locks[0]);
	return 7;
}

/* Hand over hand, further than a run may hold. */
SEC("tc")
int hands_over(struct __sk_buff *skb)
{
	int at;

	for (at = 1; at < (int)turns; at++) {
		if (at == 1)
			xk_lock(&shared->locks[0]);
		xk_lock(&shared->locks[at % LOCKS]);
		if (!xk_unlock(&shared->locks[(at - 1) % LOCKS]))
			return 1;
	}
	xk_unlock(&shared->locks[(at - 1) % LOCKS]);
	return 7;
}

SEC("tc")
int takes_many(struct __sk_buff *skb)
{
	for (int at = 0; at < (int)turns; at++)
		xk_lock(&shared->locks[at % LOCKS]);
	reached++;
	for (int at = 0; at < (int)turns; at++)
		xk_unlock(&shared->locks[at % LOCKS]);
	return 7;
}

SEC("tc")
int keeps(struct __sk_buff *skb)
{
	xk_lock(&shared->locks[4]);
	xk_read_lock(&shared->both);
	return 9;
}

SEC("tc")
int gives_back_what_it_has_not(struct __sk_buff *skb)
{
	return 10 + xk_unlock(&shared->locks[0]) + xk_read_unlock(&shared->both);
}

SEC("tc")
int tries(struct __sk_buff *skb)
{
	int found = 0;

	for (int at = 0; at < LOCKS && at < (int)turns; at++) {
		if (!xk_trylock(&shared->locks[at]))
			continue;
		found |= 1 << at;
		xk_unlock(&shared->locks[at]);
	}
	return found;
}

/* Two programs that wait for each other. */
static __always_inline void cross(__u32 own)
{
	xk_lock(&shared->locks[own]);
	first_of[own] = 1;
	while (!first_of[!own])
		asm volatile("" ::: "memory");
	xk_lock(&shared->locks[!own]);
	reached++;
	xk_unlock(&shared->locks[!own]);
	xk_unlock(&shared->locks[own]);
	first_of[0] = first_of[1] = 0;
}

SEC("tc")
int crosses(struct __sk_buff *skb)
{
	cross(0);
	return 7;
}

SEC("tc")
int crosses_back(struct __sk_buff *skb)
{
	cross(1);
	return 7;
}

/* Holds the lock until another run on this CPU has interrupted it. */
SEC("tc")
int is_interrupted(struct __sk_buff *skb)
{
	__u64 before = above;

	xk_lock(&shared->locks[5]);
	first_of[0] = 1;
	while (*(volatile __u64 *)&above == before)
		asm volatile("" ::: "memory");
	first_of[0] = 0;
	xk_unlock(&shared->locks[5]);
	return 7;
}

SEC("?raw_tp/local_timer_entry")
int interrupts(void *ctx)
{
	XK_USE_HEAP();
	if (!first_of[0])
		return 0;
	__sync_fetch_and_add(&above, 1);
	xk_lock(&shared->locks[5]);
	reached++;
	xk_unlock(&shared->locks[5]);
	return 0;
}

/* A table that several change. */
SEC("tc")
int changes(struct __sk_buff *skb)
{
	__u64 own = bpf_get_prandom_u32();

	xk_lock(&shared->locks[6]);
	if (own & 64)
		xk_hash_remove(hash, own % 64);
	else
		xk_hash_set(hash, own % 64, own << 8 | own % 64);
	xk_unlock(&shared->locks[6]);
	return 7;
}
