// SPDX-License-Identifier: GPL-2.0-only
/* Needs an interface, and has neither a heap nor a loop. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}
