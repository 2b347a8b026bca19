/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which commands of a TCP connection are not answered here, but by memcached. Over UDP, all are
 * answered here.
 */
#ifndef _XK_MEMCACHED_FOREIGN_H
#define _XK_MEMCACHED_FOREIGN_H

#ifdef MC_STREAM

/* Commands of user space, and one that ends what it asks. */
static __always_inline __u64 mc_stream_spec(__u64 name)
{
	if (name == SV_WORD("mn"))
		return MC_COUNT_OF(1, 15) | MC_ENDS;
	return name == SV_WORD("xkclaim") ? MC_COUNT_OF(2, 2) | MC_CLAIMS : 0;
}

/* The command is not answered here. */
static __always_inline int mc_is_foreign(struct mc_work *work)
{
	work->foreign = 1;
	return 1;
}

/*
 * Whether user space has to do it. On a connection on which user space asks what a client has sent,
 * keys are not moved, and not dropped.
 */
static __always_inline int mc_is_shared(struct mc_work *work, __u64 spec)
{
	__u64 asks = sv_connection(work)->asks;

	if (spec & (MC_CLAIMS | MC_FLUSHES) && asks != SV_MOVES)
		return mc_is_foreign(work);
	return spec & MC_SHARED && !asks && mc_is_foreign(work);
}

/* Where a key of several begins; 0: there was none yet. */
static __always_inline void mc_note_key(struct mc_work *work, __u64 at)
{
	if (!at || !work->first)
		work->first = at;
	work->word_at = at;
}

/* Whether the value of the command has not come yet, or is longer than a value here: what is next. */
static __always_inline int mc_value_waits(struct mc_work *work)
{
	__u64 length = work->numbers[2], end = work->next + length + 2;

	if (length > MC_VALUE || end - work->begin > MC_MOST - SV_PIECE)
		return mc_is_foreign(work) ? MC_AGAIN : 0;
	return end > work->end ? MC_MORE : 0;
}

#else

static __always_inline __u64 mc_stream_spec(__u64 name)
{
	return 0;
}

static __always_inline int mc_is_foreign(struct mc_work *work)
{
	return 0;
}

static __always_inline int mc_is_shared(struct mc_work *work, __u64 spec)
{
	return 0;
}

static __always_inline void mc_note_key(struct mc_work *work, __u64 at)
{
}

static __always_inline int mc_value_waits(struct mc_work *work)
{
	return 0;
}

#endif

#endif
