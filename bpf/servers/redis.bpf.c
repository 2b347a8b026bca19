// SPDX-License-Identifier: GPL-2.0-only
/*
 * A server of Redis' protocol in front of redis-server: strings, hashes and sorted sets are in the
 * heap, and requests for them are answered where their packets arrive at the socket.
 *
 *	xk-redis bpf/servers/redis.bpf.c
 *
 * In: packets of connections to the port. Out: replies, and to xk-redis what is not answered here,
 * with all that follows it. It needs xk.ko, whose kfuncs send and pass on.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
/* The verifier follows changes of structures once. */
#define XK_FLEX_APART
#include "xk_flex.bpf.h"
#include "xk_heap.bpf.h"
#include "xk_stream.bpf.h"
#include "flex/lock.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(262144);

#include "redis/do.h"

/* The port of redis-server. */
const volatile __u32 rd_port = 6379;

/* A connection, by its peer. */
struct rd_peer {
	__u32 ip[4];
	__u32 port;
	__u32 family;
};

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 65536);
	__type(key, struct rd_peer);
	__type(value, __u64);
} rd_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct rd_peer);
	__type(value, __u64);		/* struct rd_connection */
} rd_connections SEC(".maps");

/*
 * A peer whose requests were passed on, or whose connection changes, for xk-redis. It frees the
 * record of a connection that is closed: it may be about to write there.
 */
struct rd_event {
	struct rd_peer peer;
	__u64 closed;		/* the record, or 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} rd_events SEC(".maps");

#define RD_IPV4		2

static __always_inline void rd_send(struct xk_stream *stream, struct rd_work *work)
{
	__u64 length = work->out;

	if (length > RD_OUT_MASK)
		length = RD_OUT_MASK;
	barrier_var(length);
	if (length && xk_stream_send(stream, work->reply, length))
		work->broken = 1;
	work->out = 0;
}

static __always_inline void rd_pass(struct xk_stream *stream, struct rd_work *work)
{
	__u64 at = work->at & RD_MASK, length = work->end - work->at;

	if (length > RD_MOST)
		length = RD_MOST;
	barrier_var(length);
	if (xk_stream_pass(stream, &work->in[at], length))
		work->broken = 1;
	rd_passed();
}

/* Copies the next piece of the packet. There is one, and room for it. */
static __always_inline void rd_load(struct __sk_buff *skb, struct rd_work *work)
{
	__u64 end = work->end, length = work->packet - work->copied;

	if (length > RD_PIECE)
		length = RD_PIECE;
	if (end > RD_MOST - RD_PIECE)
		end = 0;
	/* Apart, so that the verifier sees all bounds. */
	barrier_var(end);
	barrier_var(length);
	length = ((length - 1) & (RD_PIECE - 1)) + 1;
	if (bpf_skb_load_bytes(skb, work->copied, &work->in[end], length))
		work->broken = 1;
	work->end = end + length;
	work->copied += length;
}

/* What functions that are verified once cannot do, because a run may be ended there. */
static __noinline void rd_act(struct rd_work *work, int act)
{
	struct rd_shard __heap *shard = (struct rd_shard __heap *)work->shard;
	struct xk_skiplist __heap *list;

	if (act == RD_FIND) {
		rd_find(work, work->shard);
	} else if (act == RD_LOCK) {
		xk_lock(&shard->lock);
	} else if (act == RD_UNLOCK) {
		xk_unlock(&shard->lock);
	} else {
		list = (struct xk_skiplist __heap *)rd_set_of(work->key_item)->list;
		if (act == RD_SEEK)
			xk_skiplist_seek(list, work->sought, work->sought_member);
		else
			work->link = (__u64)xk_skiplist_at(list, work->rank);
	}
}

static __always_inline void rd_packet(struct __sk_buff *skb, struct xk_stream *stream,
				      struct rd_work *work)
{
	int act;

	if (work->packet)
		rd_load(skb, work);
	for (;;) {
		act = rd_turn();
		/* The compiler does not know it, and so makes no second entry of the loop. */
		barrier_var(act);
		if (act == RD_DONE)
			break;
		if (act == RD_SEND)
			rd_send(stream, work);
		else if (act == RD_PASS)
			rd_pass(stream, work);
		else if (act == RD_LOAD)
			rd_load(skb, work);
		else if (act != RD_AGAIN)
			rd_act(work, act);
	}
	if (work->at != work->end)
		rd_keep();
	rd_send(stream, work);
}

SEC("sk_skb/stream_verdict")
int redis(struct __sk_buff *skb)
{
	struct rd_work *work = rd_work();
	struct xk_stream *stream;
	struct rd_peer peer = {
		.ip = { skb->remote_ip4 },
		.port = skb->remote_port,
		.family = skb->family,
	};
	struct rd_connection __heap *own;
	struct rd_event event = {};
	__u64 *connection;

	XK_USE_HEAP();
	if (skb->family != RD_IPV4) {
		peer.ip[0] = skb->remote_ip6[0];
		peer.ip[1] = skb->remote_ip6[1];
		peer.ip[2] = skb->remote_ip6[2];
		peer.ip[3] = skb->remote_ip6[3];
	}
	stream = xk_stream_acquire(skb);
	if (!stream)
		return SK_DROP;
	connection = bpf_map_lookup_elem(&rd_connections, &peer);
	if (work && connection) {
		work->at = 0;
		work->end = 0;
		work->out = 0;
		work->last = 0;
		work->broken = 0;
		work->copied = 0;
		work->locked = 0;
		work->packet = skb->len;
		work->now = bpf_ktime_get_tai_ns() / 1000000;
		work->foreign = 0;
		work->passes = 0;
		work->connection = *connection;
		own = (struct rd_connection __heap *)*connection;
		if (own->pending || own->passed != own->done)
			rd_restore();
		rd_packet(skb, stream, work);
		/* If user space would not know of them, they would never be answered. */
		event.peer = peer;
		if (work->passes && bpf_ringbuf_output(&rd_events, &event, sizeof(event), 0))
			work->broken = 1;
		if (!work->broken)
			xk_stream_done(stream);
	}
	xk_stream_release(stream);
	return SK_DROP;
}

/* A connection of this peer begins. Whether there was memory. */
static __always_inline int rd_opens(struct rd_peer *peer)
{
	__u64 connection = rd_zeros(sizeof(struct rd_connection));

	if (!connection)
		return 0;
	if (!bpf_map_update_elem(&rd_connections, peer, &connection, BPF_ANY))
		return 1;
	xk_free_apart(connection);
	return 0;
}

/* The record of a connection that is closed, or 0. */
static __always_inline __u64 rd_closes(struct rd_peer *peer)
{
	__u64 *connection = bpf_map_lookup_elem(&rd_connections, peer), record;

	if (!connection)
		return 0;
	record = *connection;
	xk_free_apart(((struct rd_connection __heap *)record)->pending);
	bpf_map_delete_elem(&rd_connections, peer);
	return record;
}

SEC("sockops")
int redis_connections(struct bpf_sock_ops *ctx)
{
	struct rd_peer peer = {
		.ip = { ctx->remote_ip4 },
		.port = ctx->remote_port,
		.family = ctx->family,
	};
	struct rd_event event = {};

	XK_USE_HEAP();
	if (ctx->local_port != rd_port)
		return 1;
	if (ctx->family != RD_IPV4) {
		peer.ip[0] = ctx->remote_ip6[0];
		peer.ip[1] = ctx->remote_ip6[1];
		peer.ip[2] = ctx->remote_ip6[2];
		peer.ip[3] = ctx->remote_ip6[3];
	}
	if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB) {
		if (!rd_opens(&peer))
			return 1;
		bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_STATE_CB_FLAG);
		bpf_sock_hash_update(ctx, &rd_sockets, &peer, BPF_ANY);
	} else if (ctx->op == BPF_SOCK_OPS_STATE_CB) {
		event.peer = peer;
		if (ctx->args[1] == BPF_TCP_CLOSE)
			event.closed = rd_closes(&peer);
		bpf_ringbuf_output(&rd_events, &event, sizeof(event), 0);
	}
	return 1;
}
