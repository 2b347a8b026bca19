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
#include "connections.h"

/* The port of redis-server. */
const volatile __u32 rd_port = 6379;

/* What functions that are verified once cannot do, because a run may be ended there. */
static __noinline void rd_act(struct rd_work *work, int act)
{
	struct rd_shard __heap *shard = (struct rd_shard __heap *)work->shard;
	struct xk_skiplist __heap *list;

	if (act == RD_FIND) {
		rd_find(work, work->shard);
	} else if (act == RD_LOCK) {
		xk_lock(&shard->lock);
		if (shard->dropped)
			rd_sweep();
		rd_find(work, work->shard);
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

	work->last = 0;
	work->locked = 0;
	if (work->packet)
		sv_copy_piece(skb, work);
	for (;;) {
		act = rd_turn();
		/* The compiler does not know it, and so makes no second entry of the loop. */
		barrier_var(act);
		if (act == SV_DONE)
			break;
		if (act == SV_SEND)
			sv_send(stream, work);
		else if (act == SV_PASS)
			sv_pass(stream, work);
		else if (act == SV_LOAD)
			sv_copy_piece(skb, work);
		else if (act != SV_AGAIN)
			rd_act(work, act);
		if (act == RD_UNLOCK && rd_is_done(work))
			break;
	}
	if (work->at != work->end)
		sv_keep();
	sv_send(stream, work);
}

SEC("sk_skb/stream_verdict")
int redis(struct __sk_buff *skb)
{
	XK_USE_HEAP();
	return sv_arrives(skb, rd_packet);
}

SEC("sockops")
int redis_connections(struct bpf_sock_ops *ctx)
{
	XK_USE_HEAP();
	return sv_changes(ctx, rd_port);
}
