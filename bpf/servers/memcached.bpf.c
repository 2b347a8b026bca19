// SPDX-License-Identifier: GPL-2.0-only
/*
 * A cache that speaks memcached's text protocol over UDP, in the kernel: requests are answered
 * where packets arrive (XDP).
 *
 *	xk flex run bpf/servers/memcached.bpf.c --dev eth0
 *
 * Items are in the heap. Requests and replies are one datagram each. What is longer is refused. No
 * request goes on to a server in user space: the keys over UDP are those of this cache.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "xk_flex.bpf.h"
#include "xk_heap.bpf.h"
#include "flex/lock.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(262144);

#include "memcached/items.h"

#define MC_PORT		11211
#define ETH_P_IP	0x0800
#define IP_FRAGMENT	0x3fff	/* more fragments follow, or it is not the first one */

/* Headers of a datagram, without options. */
struct mc_headers {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	/* memcached's own: a number of the request, which datagram of how many, and 0 */
	__be16 request;
	__be16 sequence;
	__be16 total;
	__be16 reserved;
} __attribute__((packed));

/* The checksum of a header of IP without options, whose field is 0 (RFC 1071). */
static __always_inline __u16 mc_checksum(struct iphdr *ip)
{
	__u16 *words = (__u16 *)ip;
	__u32 sum = 0;

#pragma clang loop unroll(full)
	for (int at = 0; at < (int)sizeof(*ip) / 2; at++)
		sum += words[at];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Makes the packet as long as the reply; whether there is room behind it. */
static __always_inline int mc_fits(struct xdp_md *ctx, struct mc_work *work)
{
	int length = sizeof(struct mc_headers) + work->out - MC_FRAME;

	return !bpf_xdp_adjust_tail(ctx, length - (int)bpf_xdp_get_buff_len(ctx));
}

/* Makes the reply of the request. */
static __always_inline int mc_answer(struct xdp_md *ctx, struct mc_work *work)
{
	struct mc_headers *head;
	__u8 address[6];
	struct iphdr ip;
	__u32 length;
	__be16 port;

	if (!mc_fits(ctx, work)) {
		work->out = MC_FRAME;
		mc_say(MC_NO_ROOM);
		if (!mc_fits(ctx, work))
			return 0;
	}
	length = work->out - MC_FRAME;
	head = (void *)(long)ctx->data;
	if ((void *)(head + 1) > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(address, head->eth.h_dest, sizeof(address));
	__builtin_memcpy(head->eth.h_dest, head->eth.h_source, sizeof(address));
	__builtin_memcpy(head->eth.h_source, address, sizeof(address));
	ip = head->ip;
	ip.saddr = head->ip.daddr;
	ip.daddr = head->ip.saddr;
	ip.ttl = 64;
	ip.tot_len = bpf_htons(sizeof(*head) - sizeof(head->eth) + length);
	ip.check = 0;
	ip.check = mc_checksum(&ip);
	head->ip = ip;
	port = head->udp.source;
	head->udp.source = head->udp.dest;
	head->udp.dest = port;
	head->udp.len = bpf_htons(sizeof(head->udp) + MC_FRAME + length);
	/* Not computed, which IPv4 permits. */
	head->udp.check = 0;
	head->sequence = 0;
	head->total = bpf_htons(1);
	head->reserved = 0;
	if (length > MC_MOST)
		return 0;
	barrier_var(length);
	return length && !bpf_xdp_store_bytes(ctx, sizeof(*head), work->reply + MC_FRAME, length);
}

/* Whether it is a request. Copies its text, if it is in one datagram. */
static __always_inline int mc_arrives(struct xdp_md *ctx, struct mc_work *work)
{
	struct mc_headers *head = (void *)(long)ctx->data;
	__u32 length;

	if ((void *)(head + 1) > (void *)(long)ctx->data_end)
		return 0;
	if (head->eth.h_proto != bpf_htons(ETH_P_IP) || head->ip.version != 4 || head->ip.ihl != 5 ||
	    head->ip.protocol != IPPROTO_UDP || head->ip.frag_off & bpf_htons(IP_FRAGMENT) ||
	    head->udp.dest != bpf_htons(MC_PORT))
		return 0;
	length = bpf_ntohs(head->udp.len) - sizeof(head->udp) - MC_FRAME;
	/* Apart, so that the verifier sees both bounds. */
	if (length > MC_MOST)
		return 0;
	barrier_var(length);
	if (!length)
		return 0;
	work->end = length;
	work->at = 0;
	work->out = MC_FRAME;
	work->full = 0;
	work->spec = 0;
	work->quiet = 0;
	work->now = bpf_ktime_get_tai_ns() / 1000000000;
	if (head->total != bpf_htons(1)) {
		work->end = 0;
		mc_say(MC_PACKETS);
		return 1;
	}
	return !bpf_xdp_load_bytes(ctx, sizeof(*head), work->in, length);
}

SEC("xdp")
int memcached(struct xdp_md *ctx)
{
	struct mc_work *work = mc_work();
	int step;

	XK_USE_HEAP();
	if (!work || !mc_arrives(ctx, work))
		return XDP_PASS;
	if (!mc_store)
		mc_shard(0);
	while ((step = mc_next()) != MC_STOP) {
		if (step == MC_ITEM)
			mc_item(work);
	}
	if (work->full) {
		work->out = MC_FRAME;
		work->quiet = 0;
		mc_say(MC_NO_ROOM);
	}
	if (work->out == MC_FRAME)
		return XDP_DROP;
	return mc_answer(ctx, work) ? XDP_TX : XDP_DROP;
}
