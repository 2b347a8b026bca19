// SPDX-License-Identifier: GPL-2.0-only
/*
 * A cache that speaks memcached's text protocol over TCP, in front of memcached: requests are
 * answered where their packets arrive at the socket.
 *
 *	xk-memcached bpf/servers/memcached_tcp.bpf.c
 *
 * In: packets of connections to the port. Out: replies, and to xk-memcached what is not answered
 * here, with all that follows it. It needs xk.ko, whose kfuncs send and pass on.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#define XK_FLEX_APART
#include "xk_flex.bpf.h"
#include "xk_heap.bpf.h"
#include "xk_stream.bpf.h"
#include "flex/base.h"
#include "flex/lock.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(262144);

#define MC_STREAM
#include "memcached/items.h"
#include "connections.h"

/* The port of memcached. */
const volatile __u32 mc_port = 11211;

/* The first byte of a request in the binary protocol. */
#define MC_BINARY	0x80

/* What the program does for mc_turn(), beside `enum sv_acts`: something with a key. */
#define MC_WITH_ITEM	SV_ACTS

/*
 * The command is not answered here, nor what follows it in the packet. Of several keys, those before
 * this one are answered: what is passed on is the same command, without them.
 */
static __always_inline int mc_not_mine(struct mc_work *work)
{
	if (sv_connection(work)->asks) {
		work->quiet = 0;
		mc_say(MC_NOT_MINE);
		work->at = work->next;
		work->spec = 0;
		return SV_AGAIN;
	}
	if (work->spec & MC_GETS && work->word_at != work->first) {
		work->rest = work->end;
		work->end = work->first;
	}
	work->at = work->begin;
	work->spec = 0;
	work->passes = 1;
	return SV_AGAIN;
}

/* As sv_pass_on(), with the rest of a command behind its head. */
static __always_inline int mc_pass_on(struct mc_work *work)
{
	if (work->rest && !work->out) {
		if (work->at < work->end)
			return SV_PASS;
		work->at = work->word_at;
		work->end = work->rest;
		work->rest = 0;
	}
	return sv_pass_on(work);
}

/* Goes on until the program must do something. */
__noinline int mc_turn(void)
{
	struct mc_work *work = mc_work();
	int step;

	XK_USE_HEAP();
	if (!work || work->broken)
		return SV_DONE;
	if (work->foreign) {
		work->foreign = 0;
		return mc_not_mine(work);
	}
	if (work->passes)
		return mc_pass_on(work);
	if (work->out > MC_FLUSH) {
		/* What was sent of the reply to a command is not taken back. */
		work->began = 0;
		return SV_SEND;
	}
	if (!(work->spec & MC_GETS)) {
		work->begin = work->at;
		if (work->at < work->end && work->in[work->at & MC_MASK] == MC_BINARY)
			return mc_not_mine(work);
	}
	step = mc_next();
	if (step == MC_ITEM)
		return MC_WITH_ITEM;
	if (step == MC_AGAIN)
		return SV_AGAIN;
	/* The command is not whole. */
	work->at = work->begin;
	step = sv_load_more(work);
	work->begin = work->at;
	return step;
}

static __always_inline void mc_packet(struct __sk_buff *skb, struct xk_stream *stream,
				      struct mc_work *work)
{
	int act;

	work->now = bpf_ktime_get_tai_ns() / 1000000000;
	work->full = 0;
	work->spec = 0;
	work->quiet = 0;
	work->rest = 0;
	if (!mc_store)
		mc_shard(0);
	if (work->packet)
		sv_copy_piece(skb, work);
	for (;;) {
		act = mc_turn();
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
		else if (act == MC_WITH_ITEM)
			mc_item(work);
	}
	if (work->at != work->end)
		sv_keep();
	sv_send(stream, work);
}

SEC("sk_skb/stream_verdict")
int memcached(struct __sk_buff *skb)
{
	XK_USE_HEAP();
	return sv_arrives(skb, mc_packet);
}

SEC("sockops")
int memcached_connections(struct bpf_sock_ops *ctx)
{
	XK_USE_HEAP();
	return sv_changes(ctx, mc_port);
}
