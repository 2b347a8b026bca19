// SPDX-License-Identifier: GPL-2.0-only
/*
 * What requests cost the side of a server, apart from that of its clients on the same CPU: the time
 * in which the kernel receives packets for its port, and the time in which it receives packets at
 * all while the server's own thread is the current one, which is no work of that thread.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "GPL";

/* Told by user space; one of each, since the guest has one CPU. */
__u64 port;
__u64 server;
/* Instructions. */
__u64 received;
__u64 beside;

static __u64 packet_began, action_began;

SEC("fentry/tcp_v4_rcv")
int BPF_PROG(packet_begins, struct sk_buff *skb)
{
	struct tcphdr *head = (struct tcphdr *)BPF_CORE_READ(skb, data);
	__be16 to = BPF_CORE_READ(head, dest);

	packet_began = bpf_ntohs(to) == port ? bpf_ktime_get_ns() : 0;
	return 0;
}

SEC("fexit/tcp_v4_rcv")
int BPF_PROG(packet_ends)
{
	if (packet_began)
		received += bpf_ktime_get_ns() - packet_began;
	packet_began = 0;
	return 0;
}

SEC("fentry/net_rx_action")
int BPF_PROG(action_begins)
{
	action_began = bpf_get_current_pid_tgid() >> 32 == server ? bpf_ktime_get_ns() : 0;
	return 0;
}

SEC("fexit/net_rx_action")
int BPF_PROG(action_ends)
{
	if (action_began)
		beside += bpf_ktime_get_ns() - action_began;
	action_began = 0;
	return 0;
}
