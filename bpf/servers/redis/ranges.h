/* SPDX-License-Identifier: GPL-2.0-only */
/* Commands of ranges of sorted sets, by rank and by score. */
#ifndef _XK_REDIS_RANGES_H
#define _XK_REDIS_RANGES_H

#include "sets.h"

/* A bound of a range of scores: the lowest score in it, or the highest one. */
__noinline int rd_bound(__u64 index, int high)
{
	struct rd_work *work = rd_work();
	__u64 arg, at, length;
	int excluded, read;

	if (!work)
		return 0;
	arg = rd_arg(work, index);
	at = RD_AT(arg);
	excluded = RD_LENGTH(arg) && rd_byte(work, at) == '(';
	at += excluded;
	length = RD_LENGTH(arg) - excluded;
	/* Of nothing, Redis makes 0. It ignores spaces before a number. */
	read = RD_SCORE;
	work->number = 0;
	if (length == 2 && (rd_eight(work, at) & 0xffff) == SV_WORD("-0"))
		length = 0;
	if (length)
		read = rd_classes[rd_byte(work, at)] ? RD_OTHER_SCORE : rd_score(at, length);
	if (read != RD_SCORE)
		return rd_bad_score(work, read, RD_NO_BOUND);
	/* Scores are whole numbers. */
	if (excluded)
		work->number += high ? -1 : 1;
	return 1;
}

/* Reads the two numbers behind LIMIT. Whether they are right. */
__noinline int rd_limit(__u64 index)
{
	struct rd_work *work = rd_work();

	if (!work)
		return 0;
	if (!rd_arg_integer(work, index + 1))
		goto wrong;
	work->offset = work->number;
	if (!rd_arg_integer(work, index + 2))
		goto wrong;
	work->limit = work->number;
	return 1;
wrong:
	rd_say(RD_NO_INTEGER);
	return 0;
}

/* Reads what follows a range. Whether it is right. */
__noinline int rd_range_options(void)
{
	struct rd_work *work = rd_work();
	__u64 turn, allowed = RD_SCORES, limit;
	__u32 option;

	if (!work)
		return 0;
	if (work->command == RC_ZRANGE)
		allowed |= RD_BACKWARDS;
	if (work->command == RC_ZRANGEBYSCORE)
		allowed |= RD_LIMIT;
	work->index = 4;
	sv_turns (turn, RD_ARGS) {
		if (work->index >= work->args)
			break;
		option = rd_option(work->index) & allowed;
		limit = option & RD_LIMIT;
		if (!option || (limit && work->args - work->index <= 2)) {
			if (work->command == RC_ZRANGE)
				work->foreign = 1;
			else
				rd_say(RD_SYNTAX);
			return 0;
		}
		if (limit && !rd_limit(work->index))
			return 0;
		work->options |= option;
		work->index += limit ? 3 : 1;
	}
	return 1;
}

/* Reads the words of a range. Whether they are right. */
__noinline int rd_prepare_range(void)
{
	struct rd_work *work = rd_work();
	__u64 command;

	if (!work)
		return 0;
	command = work->command;
	work->limit = ~0ull >> 1;
	if (command == RC_ZREVRANGE)
		work->options |= RD_BACKWARDS;
	if (!rd_range_options())
		return 0;
	if (command == RC_ZRANGEBYSCORE || command == RC_ZCOUNT) {
		if (!rd_bound(2, 0))
			return 0;
		work->low = work->number;
		if (!rd_bound(3, 1))
			return 0;
	} else {
		if (!rd_arg_integer(work, 2))
			goto wrong;
		work->low = work->number;
		if (!rd_arg_integer(work, 3))
			goto wrong;
	}
	work->high = work->number;
	return 1;
wrong:
	rd_say(RD_NO_INTEGER);
	return 0;
}

/* From `low` and `high`, which are ranks: the first rank, and how many follow, as `count`. */
__noinline int rd_range_begins(void)
{
	struct rd_work *work = rd_work();
	__s64 low, high, count;

	if (!work)
		return SV_DONE;
	low = work->low;
	high = work->high;
	count = low <= high ? high - low + 1 : 0;
	if ((__s64)work->offset < 0 || (__s64)work->offset >= count)
		count = 0;
	else
		count -= work->offset;
	if ((__s64)work->limit >= 0 && count > (__s64)work->limit)
		count = work->limit;
	work->count = count;
	rd_say_number('*', work->options & RD_SCORES ? 2 * count : count);
	if (!count)
		return SV_DONE;
	work->rank = low + work->offset;
	if (work->options & RD_BACKWARDS)
		work->rank = rd_set_of(work->key_item)->count - 1 - work->rank;
	work->phase = 4;
	return RD_LINK;
}

/* Says some members from the link on. */
__noinline int rd_range_goes_on(void)
{
	struct xk_skiplist_item __heap *link;
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	__u64 turn;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	sv_turns (turn, 8) {
		link = (struct xk_skiplist_item __heap *)work->link;
		if (!work->count || !link)
			return SV_DONE;
		item = (struct rd_item __heap *)link->key;
		rd_say_string((__u64)item->data, item->key_length);
		if (work->options & RD_SCORES)
			rd_say_score(item->score);
		work->count--;
		if (work->options & RD_BACKWARDS) {
			work->rank--;
			return work->count ? RD_LINK : SV_DONE;
		}
		work->link = (__u64)link->links[0].next;
	}
	return SV_AGAIN;
}

__noinline int rd_zrange(void)
{
	struct rd_work *work = rd_work();
	__s64 low, high, length;
	int counts;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	counts = work->command == RC_ZCOUNT;
	switch (work->phase) {
	case 0:
		if (!rd_own(work, RD_IS_ZSET, 0))
			return SV_DONE;
		if (!work->key_item) {
			rd_say(counts ? RD_ZERO : RD_EMPTY);
			return SV_DONE;
		}
		low = work->low;
		high = work->high;
		if (counts || work->command == RC_ZRANGEBYSCORE) {
			if (low > high) {
				rd_say(counts ? RD_ZERO : RD_EMPTY);
				return SV_DONE;
			}
			work->phase = 1;
			return rd_seek_score(work, low, 0);
		}
		length = rd_set_of(work->key_item)->count;
		low += low < 0 ? length : 0;
		high += high < 0 ? length : 0;
		work->low = low < 0 ? 0 : low;
		work->high = high >= length ? length - 1 : high;
		return rd_range_begins();
	case 1:
		/* The number of those below the first score. */
		work->index = rd_sought_rank(work);
		work->phase = 2;
		return rd_seek_score(work, work->high + 1, 0);
	case 2:
		if (counts) {
			rd_say_number(':', rd_sought_rank(work) - work->index);
			return SV_DONE;
		}
		work->low = work->index;
		work->high = rd_sought_rank(work) - 1;
		return rd_range_begins();
	}
	return rd_range_goes_on();
}

#endif
