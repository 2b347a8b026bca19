/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TCP connections to a port of an extension: what is noted of each, and when one begins and ends.
 *
 * In: SV_PORT, a name for the port that user space may set before the program is loaded. The owner
 * of the port in user space (crates/xk-front) accepts connections, and reads what is passed on.
 */
#ifndef _XK_SERVERS_CONNECTIONS_H
#define _XK_SERVERS_CONNECTIONS_H

#include "stream.h"

/* A connection, by its peer. */
struct sv_peer {
	__u32 ip[4];
	__u32 port;
	__u32 family;
};

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 65536);
	__type(key, struct sv_peer);
	__type(value, __u64);
} sv_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct sv_peer);
	__type(value, __u64);		/* struct sv_connection */
} sv_connections SEC(".maps");

/*
 * A peer of which something was passed on, or whose connection changes, for user space. It frees
 * the record of a connection that is closed: it may be about to write there.
 */
struct sv_event {
	struct sv_peer peer;
	__u64 closed;		/* the record, or 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} sv_events SEC(".maps");

#define SV_IPV4		2

/* The peer of a packet, or of a connection that changes, by IPv4. */
#define SV_PEER(ctx)	{ { (ctx)->remote_ip4 }, (ctx)->remote_port, (ctx)->family }

/* The same by IPv6. Each field of a context is read by itself: the verifier knows no addresses in it. */
#define sv_use_ipv6(peer, ctx)	do {					\
	(peer)->ip[0] = (ctx)->remote_ip6[0];				\
	(peer)->ip[1] = (ctx)->remote_ip6[1];				\
	(peer)->ip[2] = (ctx)->remote_ip6[2];				\
	(peer)->ip[3] = (ctx)->remote_ip6[3];				\
} while (0)

/*
 * Processes a packet of a connection. `packet` is a function that gets the work, when nothing of
 * the packet has been copied and what came before is there again.
 */
static __always_inline int sv_arrives(struct __sk_buff *skb,
				      void (*packet)(struct __sk_buff *, struct xk_stream *, SV_WORK *))
{
	SV_WORK *work = SV_GET_WORK();
	struct xk_stream *stream;
	struct sv_peer peer = SV_PEER(skb);
	struct sv_connection __heap *own;
	__u64 *connection;

	if (skb->family != SV_IPV4)
		sv_use_ipv6(&peer, skb);
	stream = xk_stream_acquire(skb);
	if (!stream)
		return SK_DROP;
	connection = bpf_map_lookup_elem(&sv_connections, &peer);
	if (work && connection) {
		work->at = 0;
		work->end = 0;
		work->out = 0;
		work->broken = 0;
		work->copied = 0;
		work->packet = skb->len;
		work->now = 0;
		work->foreign = 0;
		work->passes = 0;
		work->connection = *connection;
		own = (struct sv_connection __heap *)*connection;
		if (own->pending || own->passed != own->done)
			sv_restore();
		packet(skb, stream, work);
		/* If user space would not know of them, they would never be answered. */
		if (work->passes) {
			struct sv_event event = { .peer = peer };

			if (bpf_ringbuf_output(&sv_events, &event, sizeof(event), 0))
				work->broken = 1;
		}
		if (!work->broken) {
			xk_stream_done(stream);
			return SK_DROP;
		}
	}
	xk_stream_release(stream);
	return SK_DROP;
}

/* An object of zeros; NULL without memory. */
__noinline __u64 sv_new_connection(void)
{
	__u64 made = xk_malloc_apart(sizeof(struct sv_connection)), at;
	volatile __u64 __heap *words = (__u64 __heap *)made;

	XK_USE_HEAP();
	if (!made)
		return 0;
	sv_turns (at, sizeof(struct sv_connection) / 8)
		words[at] = 0;
	return made;
}

/* A connection of this peer begins. Whether there was memory. */
static __always_inline int sv_opens(struct sv_peer *peer)
{
	__u64 connection = sv_new_connection();

	if (!connection)
		return 0;
	if (!bpf_map_update_elem(&sv_connections, peer, &connection, BPF_ANY))
		return 1;
	xk_free_apart(connection);
	return 0;
}

/* The record of a connection that is closed, or 0. */
static __always_inline __u64 sv_closes(struct sv_peer *peer)
{
	__u64 *connection = bpf_map_lookup_elem(&sv_connections, peer), record;

	if (!connection)
		return 0;
	record = *connection;
	xk_free_apart(((struct sv_connection __heap *)record)->pending);
	bpf_map_delete_elem(&sv_connections, peer);
	return record;
}

/* A program of sock_ops: connections to the port that begin, change, and end. */
static __always_inline int sv_changes(struct bpf_sock_ops *ctx, __u32 port)
{
	struct sv_peer peer = SV_PEER(ctx);
	struct sv_event event = {};

	if (ctx->local_port != port)
		return 1;
	if (ctx->family != SV_IPV4)
		sv_use_ipv6(&peer, ctx);
	if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB) {
		if (!sv_opens(&peer))
			return 1;
		bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_STATE_CB_FLAG);
		bpf_sock_hash_update(ctx, &sv_sockets, &peer, BPF_ANY);
	} else if (ctx->op == BPF_SOCK_OPS_STATE_CB) {
		event.peer = peer;
		if (ctx->args[1] == BPF_TCP_CLOSE)
			event.closed = sv_closes(&peer);
		bpf_ringbuf_output(&sv_events, &event, sizeof(event), 0);
	}
	return 1;
}

#endif
