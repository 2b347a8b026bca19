// SPDX-License-Identifier: GPL-2.0-only
/* A loop from a constant to one of two constants: the verifier follows each turn if it may. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "xk_flex.bpf.h"

char _license[] SEC("license") = "GPL";

__u64 turns;

SEC("tc")
int counts_far(struct __sk_buff *skb)
{
	__u64 at = 0, end = skb->mark ? 3000000 : 700000;

	while (at != end) {
		at++;
		__sync_fetch_and_add(&turns, 1);
	}
	return 9;
}
