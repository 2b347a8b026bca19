/* SPDX-License-Identifier: GPL-2.0-only */
/* Parts of requests: what came before, and what is kept for the next packet. */
#ifndef _XK_REDIS_PACKET_H
#define _XK_REDIS_PACKET_H

#include "store.h"

static __always_inline struct rd_connection __heap *rd_connection(struct rd_work *work)
{
	return (struct rd_connection __heap *)work->connection;
}

/* What came before of a request is at the beginning again. */
__noinline int rd_restore(void)
{
	struct rd_work *work = rd_work();
	struct rd_connection __heap *connection;
	volatile __u64 __heap *words;
	__u64 at, length;

	XK_USE_HEAP();
	if (!work)
		return 0;
	connection = rd_connection(work);
	work->passes = connection->passed != connection->done;
	if (!connection->pending)
		return 0;
	words = (__u64 __heap *)connection->pending;
	length = connection->pending_length;
	sv_turns (at, RD_MOST / 8) {
		if (8 * at >= length)
			break;
		sv_store(&work->in[8 * at & RD_MASK], words[at]);
	}
	xk_free_apart(connection->pending);
	*(volatile __u64 __heap *)&connection->pending = 0;
	work->end = length;
	return 0;
}

/* Moves what is left to the beginning. */
__noinline int rd_shift(void)
{
	struct rd_work *work = rd_work();
	__u64 at, from, length;

	if (!work)
		return 0;
	from = work->at;
	length = work->end - from;
	sv_turns (at, RD_MOST / 8) {
		if (8 * at >= length || !from)
			break;
		sv_store(&work->in[8 * at & RD_MASK], rd_eight(work, from + 8 * at));
	}
	work->at = 0;
	work->end = length;
	if (length > RD_MOST - RD_PIECE)
		work->foreign = 1;
	return 0;
}

/* Keeps what is left for the next packet. */
__noinline int rd_keep(void)
{
	struct rd_connection __heap *connection;
	struct rd_work *work = rd_work();
	__u64 kept;

	XK_USE_HEAP();
	if (!work || work->broken)
		return 0;
	rd_shift();
	if (!work->end || work->broken)
		return 0;
	kept = xk_malloc_apart(work->end + 8);
	if (!kept) {
		rd_say(RD_MEMORY);
		work->broken = 1;
		return 0;
	}
	connection = rd_connection(work);
	connection->pending = kept;
	connection->pending_length = work->end;
	return rd_fill(kept, 0, work->end);
}

#endif
