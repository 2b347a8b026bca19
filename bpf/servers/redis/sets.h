/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Commands of sorted sets. What needs a loop without a bound is done by the program itself, when a
 * function here asks for it.
 */
#ifndef _XK_REDIS_SETS_H
#define _XK_REDIS_SETS_H

#include "strings.h"

/* Scores in the order of numbers without a sign. */
static __always_inline __u64 rd_biased(__s64 score)
{
	return (__u64)score ^ 1ull << 63;
}

/* Searches the list for a score, and a member or 0. */
static __always_inline int rd_seek_score(struct rd_work *work, __s64 score, __u64 member)
{
	work->sought = rd_biased(score);
	work->sought_member = member;
	return RD_SEEK;
}

/* The rank of what was sought. */
static __always_inline __u64 rd_sought_rank(struct rd_work *work)
{
	return ((struct xk_skiplist __heap *)rd_set_of(work->key_item)->list)->rank;
}

/* Seeks a member or field of the key that the word names. */
__noinline int rd_seek(__u64 index)
{
	struct rd_work *work = rd_work();
	__u64 arg;

	if (!work)
		return SV_DONE;
	arg = rd_arg(work, index);
	rd_key(RD_AT(arg), RD_LENGTH(arg));
	work->owner = work->key_item;
	work->hash ^= sv_mix(work->owner);
	return RD_FIND;
}

/* Whether all words from this one on, each second or each, are short enough. */
__noinline int rd_are_short(__u64 index, __u64 step)
{
	struct rd_work *work = rd_work();
	__u64 turn;

	if (!work)
		return 0;
	sv_turns (turn, RD_ARGS) {
		if (index >= work->args)
			break;
		if (RD_LENGTH(rd_arg(work, index)) > RD_KEY) {
			work->foreign = 1;
			return 0;
		}
		index += step;
	}
	return 1;
}

/* Says what is wrong with a score. */
static __always_inline int rd_bad_score(struct rd_work *work, int read, __u32 text)
{
	if (read == RD_OTHER_SCORE)
		work->foreign = 1;
	else
		rd_say(text);
	return 0;
}

/* Reads the scores of pairs from `index` on. Whether they are right. */
__noinline int rd_scores(void)
{
	struct rd_work *work = rd_work();
	__u64 turn, arg;
	int read;

	if (!work)
		return 0;
	work->low = work->index;
	sv_turns (turn, RD_ARGS / 2) {
		if (work->low >= work->args)
			break;
		arg = rd_arg(work, work->low);
		read = rd_score(RD_AT(arg), RD_LENGTH(arg));
		if (read == RD_NO_SCORE) {
			/* Redis says so whatever the others are, and before it looks for the key. */
			work->foreign = 0;
			return rd_bad_score(work, read, RD_NO_FLOAT);
		}
		if (read == RD_OTHER_SCORE)
			work->foreign = 1;
		work->scores[work->low & (RD_ARGS - 1)] = work->number;
		work->low += 2;
	}
	return !work->foreign;
}

/* Reads the options and scores of ZADD and ZINCRBY. Whether they are right. */
__noinline int rd_prepare_zadd(void)
{
	struct rd_work *work = rd_work();
	__u64 turn, options;
	__u32 option;

	if (!work)
		return 0;
	work->index = 2;
	if (work->command == RC_ZINCRBY) {
		work->options = RD_ADDS;
	} else {
		sv_turns (turn, RD_ARGS) {
			if (work->index >= work->args)
				break;
			option = rd_option(work->index);
			if (!(option & (RD_IF_NEW | RD_IF_THERE | RD_IF_GREATER | RD_IF_LESS | RD_CHANGED |
					RD_ADDS)))
				break;
			work->options |= option;
			work->index++;
		}
	}
	options = work->options;
	if (work->index >= work->args || (work->args - work->index) & 1) {
		rd_say(RD_SYNTAX);
		return 0;
	}
	if (options & RD_IF_NEW && options & RD_IF_THERE) {
		rd_say(RD_XX_NX);
		return 0;
	}
	if (!!(options & RD_IF_GREATER) + !!(options & RD_IF_LESS) + !!(options & RD_IF_NEW) > 1) {
		rd_say(RD_GT_LT);
		return 0;
	}
	if (options & RD_ADDS && work->args - work->index > 2) {
		rd_say(RD_ONE_PAIR);
		return 0;
	}
	return rd_scores() && rd_are_short(work->index + 1, 2);
}

/* The sorted set, or hash, of the key. Says what is wrong; without a key, makes one if asked to. */
static __always_inline int rd_own(struct rd_work *work, __u64 type, int makes)
{
	if (work->key_item && rd_type(work->key_item) != type) {
		rd_say(RD_WRONG_TYPE);
		return 0;
	}
	if (!work->key_item && makes) {
		work->owner = 0;
		work->key_item = rd_new_set(type);
		if (!work->key_item) {
			rd_say(RD_MEMORY);
			return 0;
		}
	}
	return 1;
}

/* A key without members goes. */
__noinline int rd_empty(void)
{
	struct rd_work *work = rd_work();

	XK_USE_HEAP();
	if (!work || !work->key_item || rd_set_of(work->key_item)->count)
		return 0;
	rd_drop(work->key_item);
	work->key_item = 0;
	return 0;
}

/* ZADD has come to an end. */
__noinline int rd_end_zadd(void)
{
	struct rd_work *work = rd_work();

	if (!work)
		return SV_DONE;
	rd_empty();
	if (!(work->options & RD_ADDS))
		rd_say_number(':', work->count);
	return SV_DONE;
}

/* The member of a pair was sought: what becomes of its score. */
__noinline int rd_add_member(void)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	struct rd_set __heap *set;
	__s64 score, old = 0;
	__u64 options;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	options = work->options;
	score = work->scores[work->index & (RD_ARGS - 1)];
	work->index += 2;
	item = (struct rd_item __heap *)work->item;
	set = rd_set_of(work->key_item);
	if (item) {
		old = item->score;
		if (options & RD_IF_NEW)
			goto skip;
		if (options & RD_ADDS) {
			if ((old == RD_INFINITE && score == -RD_INFINITE) ||
			    (old == -RD_INFINITE && score == RD_INFINITE)) {
				rd_say(RD_NAN);
				return SV_DONE;
			}
			if (old == RD_INFINITE || old == -RD_INFINITE)
				score = old;
			else if (score != RD_INFINITE && score != -RD_INFINITE)
				score += old;
		}
		if ((options & RD_IF_GREATER && score <= old) || (options & RD_IF_LESS && score >= old))
			goto skip;
	} else if (options & RD_IF_THERE) {
		goto skip;
	}
	if (score != RD_INFINITE && score != -RD_INFINITE &&
	    (score > RD_LARGEST || score < -RD_LARGEST)) {
		/* It is redis-server's. Nothing is changed, and nothing answered yet. */
		work->foreign = 1;
		work->mark = work->out;
		rd_empty();
		return SV_DONE;
	}
	work->score = score;
	if (options & RD_ADDS)
		rd_say_score(score);
	if (item && score == old)
		return SV_AGAIN;
	if (!item) {
		work->item = rd_new(RD_IS_MEMBER, 0, 0);
		if (!work->item) {
			work->out = work->rank;
			rd_say(RD_MEMORY);
			rd_empty();
			return SV_DONE;
		}
		rd_link(work->item);
		work->count++;
	} else if (options & RD_CHANGED) {
		work->count++;
	}
	set->member = work->item;
	set->from = old;
	set->to = score;
	set->change = item ? RD_ENTERS | RD_LEAVES : RD_ENTERS | RD_NEW;
	return RD_SETTLE;
skip:
	if (options & RD_ADDS)
		rd_say(RD_NIL);
	return SV_AGAIN;
}

__noinline int rd_zadd(void)
{
	struct rd_work *work = rd_work();

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	switch (work->phase) {
	case 0:
		work->rank = work->out;
		if (work->options & RD_IF_THERE && !work->key_item) {
			if (work->options & RD_ADDS)
				rd_say(RD_NIL);
			else
				rd_say(RD_ZERO);
			return SV_DONE;
		}
		if (!rd_own(work, RD_IS_ZSET, 1))
			return SV_DONE;
		work->phase = 2;
		return SV_AGAIN;
	case 1:
		work->phase = 2;
		return rd_add_member();
	}
	if (work->failed) {
		work->out = work->rank;
		rd_say(RD_MEMORY);
		rd_empty();
		return SV_DONE;
	}
	if (work->index >= work->args)
		return rd_end_zadd();
	work->phase = 1;
	return rd_seek(work->index + 1);
}

/* The list was changed, or there was no memory for that. */
__noinline int rd_settled(__u64 owner, int done)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	struct rd_set __heap *set;
	__u64 change;

	XK_USE_HEAP();
	if (!work)
		return 0;
	set = rd_set_of(owner);
	work->failed = !done;
	work->settling = 0;
	item = (struct rd_item __heap *)set->member;
	change = set->change;
	*(volatile __u64 __heap *)&set->change = 0;
	if (change & RD_GOES || (!done && change & RD_NEW))
		return rd_remove_member((__u64)item);
	if (done)
		item->score = set->to;
	return 0;
}

/*
 * Changes the list of the sorted set as its item says, one search at a time. A run may be ended at
 * a search. The next one that has the key begins again, and what was done already changes nothing.
 */
__noinline int rd_settle(void)
{
	struct rd_work *work = rd_work();
	struct rd_set __heap *set;
	__u64 change;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	set = rd_set_of(work->key_item);
	change = set->change;
	if (!work->settling) {
		work->settling = 1;
		if (change & RD_ENTERS)
			return rd_seek_score(work, set->to, set->member);
	}
	if (work->settling == 1) {
		work->settling = 2;
		if (change & RD_ENTERS &&
		    !xk_skiplist_insert_sought(set->list, rd_biased(set->to), set->member)) {
			rd_settled(work->key_item, 0);
			return SV_AGAIN;
		}
		if (change & RD_LEAVES)
			return rd_seek_score(work, set->from, set->member);
	}
	if (change & RD_LEAVES)
		xk_skiplist_remove_sought(set->list, rd_biased(set->from), set->member);
	rd_settled(work->key_item, 1);
	return SV_AGAIN;
}

__noinline int rd_zrem(void)
{
	struct rd_work *work = rd_work();
	struct rd_set __heap *set;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	switch (work->phase) {
	case 0:
		if (!rd_own(work, RD_IS_ZSET, 0))
			return SV_DONE;
		if (!work->key_item) {
			rd_say(RD_ZERO);
			return SV_DONE;
		}
		work->index = 2;
		break;
	case 1:
		work->phase = 2;
		if (!work->item)
			break;
		work->count++;
		set = rd_set_of(work->key_item);
		set->member = work->item;
		set->from = ((struct rd_item __heap *)work->item)->score;
		set->change = RD_LEAVES | RD_GOES;
		return RD_SETTLE;
	}
	if (work->index >= work->args) {
		rd_empty();
		rd_say_number(':', work->count);
		return SV_DONE;
	}
	work->phase = 1;
	work->index++;
	return rd_seek(work->index - 1);
}

/* ZCARD, ZSCORE, ZRANK and ZREVRANK. */
__noinline int rd_zget(void)
{
	struct rd_work *work = rd_work();
	__u64 command, count;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	command = work->command;
	if (!work->phase) {
		if (!rd_own(work, RD_IS_ZSET, 0))
			return SV_DONE;
		if (!work->key_item) {
			rd_say(command == RC_ZCARD ? RD_ZERO : RD_NIL);
			return SV_DONE;
		}
		if (command == RC_ZCARD) {
			rd_say_number(':', rd_set_of(work->key_item)->count);
			return SV_DONE;
		}
		work->phase = 1;
		return rd_seek(2);
	}
	if (!work->item) {
		rd_say(RD_NIL);
		return SV_DONE;
	}
	if (command == RC_ZSCORE) {
		rd_say_score(((struct rd_item __heap *)work->item)->score);
		return SV_DONE;
	}
	if (work->phase == 1) {
		work->phase = 2;
		return rd_seek_score(work, ((struct rd_item __heap *)work->item)->score, work->item);
	}
	count = rd_set_of(work->key_item)->count - 1;
	rd_say_number(':', command == RC_ZRANK ? rd_sought_rank(work) : count - rd_sought_rank(work));
	return SV_DONE;
}

#endif
