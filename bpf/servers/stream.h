/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests of a TCP connection: copying packets, parts of requests that are kept for the next
 * packet, sending replies, and passing requests on to user space.
 *
 * In: of each server, SV_WORK, the type of what it works on, with the fields that are used here;
 * SV_GET_WORK(), which finds it; SV_MASK and SV_OUT_MASK, for indexes into `in` and `reply`;
 * SV_MOST, what is worked on at once; SV_FLUSH, the length of replies that leave before more is
 * done; and SV_NO_MEMORY(), which says so to the client.
 */
#ifndef _XK_SERVERS_STREAM_H
#define _XK_SERVERS_STREAM_H

#include "text.h"

/* So much of a packet is copied at once. */
#define SV_PIECE	512

/* A connection, in the heap. */
struct sv_connection {
	__u64 pending;		/* a part of a request that came before */
	__u64 pending_length;
	__u64 passed;		/* bytes that were passed on */
	__u64 done;		/* of these, that user space has answered; until then, all are passed on */
	__u64 asks;		/* it is one of user space, which asks what is answered here; SV_MOVES */
};

/* What a connection of user space is for, if it moves keys, too. */
#define SV_MOVES	2

/* What the program does next. Functions that are verified once cannot do it. */
enum sv_acts {
	SV_DONE,	/* nothing more for the packet */
	SV_AGAIN,	/* goes on */
	SV_LOAD,	/* copies more of the packet */
	SV_SEND,	/* sends the replies */
	SV_PASS,	/* passes requests on */
	SV_ACTS		/* those of the server begin here */
};

static __always_inline struct sv_connection __heap *sv_connection(SV_WORK *work)
{
	return (struct sv_connection __heap *)work->connection;
}

/* What came before of a request is at the beginning again. */
__noinline int sv_restore(void)
{
	SV_WORK *work = SV_GET_WORK();
	struct sv_connection __heap *connection;
	volatile __u64 __heap *words;
	__u64 at, length;

	XK_USE_HEAP();
	if (!work)
		return 0;
	connection = sv_connection(work);
	work->passes = connection->passed != connection->done;
	if (!connection->pending)
		return 0;
	words = (__u64 __heap *)connection->pending;
	length = connection->pending_length;
	sv_turns (at, SV_MOST / 8) {
		if (8 * at >= length)
			break;
		sv_store(&work->in[8 * at & SV_MASK], words[at]);
	}
	xk_free_apart(connection->pending);
	*(volatile __u64 __heap *)&connection->pending = 0;
	work->end = length;
	return 0;
}

/* Moves what is left to the beginning. If it is too long then, it is not answered here. */
__noinline int sv_shift(void)
{
	SV_WORK *work = SV_GET_WORK();
	__u64 at, from, length;

	if (!work)
		return 0;
	from = work->at;
	length = work->end - from;
	sv_turns (at, SV_MOST / 8) {
		if (8 * at >= length || !from)
			break;
		sv_store(&work->in[8 * at & SV_MASK], sv_load(&work->in[(from + 8 * at) & SV_MASK]));
	}
	work->at = 0;
	work->end = length;
	if (length > SV_MOST - SV_PIECE)
		work->foreign = 1;
	return 0;
}

/* Keeps what is left for the next packet. */
__noinline int sv_keep(void)
{
	struct sv_connection __heap *connection;
	SV_WORK *work = SV_GET_WORK();
	volatile __u64 __heap *words;
	__u64 kept, at, length;

	XK_USE_HEAP();
	if (!work || work->broken)
		return 0;
	sv_shift();
	length = work->end;
	if (!length || work->broken)
		return 0;
	kept = xk_malloc_apart(length + 8);
	if (!kept) {
		SV_NO_MEMORY();
		work->broken = 1;
		return 0;
	}
	connection = sv_connection(work);
	connection->pending = kept;
	connection->pending_length = length;
	words = (__u64 __heap *)kept;
	sv_turns (at, SV_MOST / 8) {
		if (8 * at >= length)
			break;
		words[at] = sv_load(&work->in[8 * at & SV_MASK]);
	}
	return 0;
}

/*
 * A request is not whole: SV_LOAD, if there is more of the packet. There is room for a piece then,
 * and in the next packet, or the request is not answered here.
 */
static __always_inline int sv_load_more(SV_WORK *work)
{
	if (work->end > SV_MOST - SV_PIECE) {
		sv_shift();
		if (work->foreign)
			return SV_AGAIN;
	}
	return work->copied < work->packet ? SV_LOAD : SV_DONE;
}

/* What is left of the packet is passed on, behind the replies, in few pieces: the owner is slow. */
static __always_inline int sv_pass_on(SV_WORK *work)
{
	if (work->out)
		return SV_SEND;
	if (work->copied < work->packet && work->end <= SV_MOST - SV_PIECE)
		return SV_LOAD;
	return work->at < work->end ? SV_PASS : SV_DONE;
}

/* Bytes were passed on. */
__noinline int sv_passed(void)
{
	SV_WORK *work = SV_GET_WORK();

	XK_USE_HEAP();
	if (!work)
		return 0;
	sv_connection(work)->passed += work->end - work->at;
	work->at = 0;
	work->end = 0;
	return 0;
}

static __always_inline void sv_send(struct xk_stream *stream, SV_WORK *work)
{
	__u64 length = work->out;

	if (length > SV_OUT_MASK)
		length = SV_OUT_MASK;
	barrier_var(length);
	if (length && xk_stream_send(stream, work->reply, length))
		work->broken = 1;
	work->out = 0;
}

static __always_inline void sv_pass(struct xk_stream *stream, SV_WORK *work)
{
	__u64 at = work->at & SV_MASK, length = work->end - work->at;

	if (length > SV_MOST)
		length = SV_MOST;
	barrier_var(length);
	if (xk_stream_pass(stream, &work->in[at], length))
		work->broken = 1;
	sv_passed();
}

/* Copies the next piece of the packet. There is one, and room for it. */
static __always_inline void sv_copy_piece(struct __sk_buff *skb, SV_WORK *work)
{
	__u64 end = work->end, length = work->packet - work->copied;

	if (length > SV_PIECE)
		length = SV_PIECE;
	if (end > SV_MOST - SV_PIECE)
		end = 0;
	/* Apart, so that the verifier sees all bounds. */
	barrier_var(end);
	barrier_var(length);
	length = ((length - 1) & (SV_PIECE - 1)) + 1;
	if (bpf_skb_load_bytes(skb, work->copied, &work->in[end], length))
		work->broken = 1;
	work->end = end + length;
	work->copied += length;
}

#endif
