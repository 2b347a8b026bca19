// SPDX-License-Identifier: GPL-2.0-only
/* Sends each datagram of UDP back as it came, and passes everything else on: what a client costs without a server. */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_P_IP	0x0800

char _license[] SEC("license") = "GPL";

struct headers {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
} __attribute__((packed));

SEC("xdp")
int turn_around(struct xdp_md *ctx)
{
	struct headers *headers = (void *)(long)ctx->data, before;

	if ((void *)(headers + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (headers->eth.h_proto != bpf_htons(ETH_P_IP) || headers->ip.protocol != IPPROTO_UDP)
		return XDP_PASS;
	before = *headers;
	__builtin_memcpy(headers->eth.h_dest, before.eth.h_source, sizeof(before.eth.h_source));
	__builtin_memcpy(headers->eth.h_source, before.eth.h_dest, sizeof(before.eth.h_dest));
	headers->ip.saddr = before.ip.daddr;
	headers->ip.daddr = before.ip.saddr;
	headers->udp.source = before.udp.dest;
	headers->udp.dest = before.udp.source;
	/* The sender has left it to the device. 0 is no checksum. */
	headers->udp.check = 0;
	return XDP_TX;
}
