// SPDX-License-Identifier: GPL-2.0-only
/* Programs without a heap, and without a loop. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

__u64 packets;

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	__sync_fetch_and_add(&packets, 1);
	return XDP_PASS;
}
