// SPDX-License-Identifier: GPL-2.0-only
/* Loops that the verifier refuses as they are. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "xk_flex.bpf.h"

char _license[] SEC("license") = "GPL";

__u64 turns, sum;
volatile __u64 limit = 100000;

static __attribute__((noinline)) __u64 count_to(volatile __u64 *end)
{
	__u64 at = 0;

	while (at != *end) {
		at++;
		__sync_fetch_and_add(&turns, 1);
	}
	return at;
}

SEC("tc")
int in_subprogram(struct __sk_buff *skb)
{
	sum = count_to(&limit);
	return 7;
}

SEC("tc")
int in_program(struct __sk_buff *skb)
{
	__u64 at = 0;

	while (at != limit) {
		at++;
		__sync_fetch_and_add(&turns, 1);
	}
	sum = at;
	return 8;
}

/* Long packets keep it busy forever. */
SEC("tc")
int by_length(struct __sk_buff *skb)
{
	__u64 at = 0, end = limit;

	if (skb->len > 100)
		end += 1ULL << 62;
	while (at != end) {
		at++;
		__sync_fetch_and_add(&turns, 1);
	}
	return 5;
}
