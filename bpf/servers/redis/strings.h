/* SPDX-License-Identifier: GPL-2.0-only */
/* Commands of strings, and of keys of any type. */
#ifndef _XK_REDIS_STRINGS_H
#define _XK_REDIS_STRINGS_H

#include "store.h"

/* Options of commands, each a bit. */
#define RD_IF_NEW	1	/* NX */
#define RD_IF_THERE	2	/* XX */
#define RD_KEEPS_TIME	4	/* KEEPTTL */
#define RD_TELLS_OLD	8	/* GET */
#define RD_IF_GREATER	16	/* GT */
#define RD_IF_LESS	32	/* LT */
#define RD_CHANGED	64	/* CH */
#define RD_ADDS		128	/* INCR */
#define RD_SCORES	256	/* WITHSCORES */
#define RD_BACKWARDS	512	/* REV */
/* A word follows, or two. */
#define RD_LIMIT	1024
#define RD_IN_SECONDS	2048	/* EX */
#define RD_IN_MILLIS	4096	/* PX */
#define RD_AT_SECOND	8192	/* EXAT */
#define RD_AT_MILLI	16384	/* PXAT */

#define RD_TIMES	(RD_IN_SECONDS | RD_IN_MILLIS | RD_AT_SECOND | RD_AT_MILLI)

/* The bit of an option, or 0. */
__noinline __u32 rd_option(__u64 index)
{
	struct rd_work *work = rd_work();
	__u64 arg, word;

	if (!work)
		return 0;
	arg = rd_arg(work, index);
	word = rd_lower(RD_AT(arg), RD_LENGTH(arg));
	if (RD_LENGTH(arg) == 10)
		return word == RD_LOWER("withscor") &&
		       rd_lower(RD_AT(arg) + 8, 2) == RD_LOWER("es") ? RD_SCORES : 0;
	if (RD_LENGTH(arg) > 8)
		return 0;
	switch (word) {
	case RD_LOWER("nx"):
		return RD_IF_NEW;
	case RD_LOWER("xx"):
		return RD_IF_THERE;
	case RD_LOWER("keepttl"):
		return RD_KEEPS_TIME;
	case RD_LOWER("get"):
		return RD_TELLS_OLD;
	case RD_LOWER("gt"):
		return RD_IF_GREATER;
	case RD_LOWER("lt"):
		return RD_IF_LESS;
	case RD_LOWER("ch"):
		return RD_CHANGED;
	case RD_LOWER("incr"):
		return RD_ADDS;
	case RD_LOWER("rev"):
		return RD_BACKWARDS;
	case RD_LOWER("limit"):
		return RD_LIMIT;
	case RD_LOWER("ex"):
		return RD_IN_SECONDS;
	case RD_LOWER("px"):
		return RD_IN_MILLIS;
	case RD_LOWER("exat"):
		return RD_AT_SECOND;
	case RD_LOWER("pxat"):
		return RD_AT_MILLI;
	}
	return 0;
}

static __always_inline int rd_arg_integer(struct rd_work *work, __u64 index)
{
	__u64 arg = rd_arg(work, index);

	return rd_integer(RD_AT(arg), RD_LENGTH(arg));
}

/*
 * A time of a command in `number`, in seconds or milliseconds, from now on or absolute: sets
 * `expires`. Whether there is one; says what is wrong with it.
 */
__noinline int rd_time(__u64 index, int seconds, int absolute)
{
	struct rd_work *work = rd_work();
	__s64 time;

	if (!work)
		return 0;
	if (!rd_arg_integer(work, index)) {
		rd_say(RD_NO_INTEGER);
		return 0;
	}
	time = work->number;
	if (seconds) {
		if (time > RD_INFINITE / 500 || time < -(RD_INFINITE / 500))
			goto bad;
		time *= 1000;
	}
	if (!absolute) {
		if (time > 0 && (__u64)time > (~0ull >> 1) - rd_now(work))
			goto bad;
		time += rd_now(work);
	}
	work->expires = time;
	return 1;
bad:
	rd_say_named(RD_BAD_EXPIRE);
	return 0;
}

/* Reads what follows the value of SET. Whether it is right. */
__noinline int rd_prepare_set(void)
{
	struct rd_work *work = rd_work();
	__u64 turn, options;
	__u32 option;

	if (!work)
		return 0;
	work->index = 3;
	work->offset = 0;
	sv_turns (turn, RD_ARGS) {
		if (work->index >= work->args)
			break;
		option = rd_option(work->index);
		if (!(option & (RD_IF_NEW | RD_IF_THERE | RD_KEEPS_TIME | RD_TELLS_OLD | RD_TIMES)))
			goto wrong;
		/* A kind of time, and a word behind it. */
		if (option & RD_TIMES &&
		    (work->options & RD_TIMES & ~option || work->index + 1 >= work->args))
			goto wrong;
		if (option & RD_TIMES) {
			work->index++;
			work->offset = work->index;
		}
		work->options |= option;
		work->index++;
	}
	options = work->options;
	if ((options & RD_IF_NEW && options & RD_IF_THERE) ||
	    (options & RD_KEEPS_TIME && options & RD_TIMES))
		goto wrong;
	if (!(options & RD_TIMES))
		return 1;
	if (!rd_time(work->offset, !!(options & (RD_IN_SECONDS | RD_AT_SECOND)),
		     !!(options & (RD_AT_SECOND | RD_AT_MILLI))))
		return 0;
	/* The number itself must be positive. */
	if ((__s64)work->number <= 0) {
		rd_say_named(RD_BAD_EXPIRE);
		return 0;
	}
	return 1;
wrong:
	rd_say(RD_SYNTAX);
	return 0;
}

/* Stores a value from the request under the key. Whether there was memory. */
__noinline int rd_put(__u64 from, __u64 length)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	__u64 made;

	XK_USE_HEAP();
	if (!work)
		return 0;
	item = (struct rd_item __heap *)work->key_item;
	if (item && item->type == RD_IS_STRING && sv_words(item->length) == sv_words(length)) {
		rd_fill(rd_value(item), from, length);
		item->length = length;
		rd_expires(work, item, work->expires);
		return 1;
	}
	work->owner = 0;
	made = rd_new(RD_IS_STRING, from, length);
	if (!made)
		return 0;
	rd_expires(work, (struct rd_item __heap *)made, work->expires);
	if (item && item->type == RD_IS_STRING) {
		rd_replace((__u64)item, made);
	} else {
		if (item)
			rd_drop((__u64)item);
		rd_link(made);
	}
	work->key_item = made;
	return 1;
}

static __always_inline void rd_say_item(__u64 which)
{
	struct rd_item __heap *item = (struct rd_item __heap *)which;

	rd_say_string(rd_value(item), item->length);
}

static __always_inline __u64 rd_type(__u64 which)
{
	return which ? ((struct rd_item __heap *)which)->type : 0;
}

__noinline int rd_set(void)
{
	struct rd_work *work = rd_work();
	__u64 arg, old, options;

	XK_USE_HEAP();
	if (!work)
		return 0;
	old = work->key_item;
	options = work->options;
	arg = rd_arg(work, 2);
	if (options & RD_TELLS_OLD && old && rd_type(old) != RD_IS_STRING)
		return rd_say(RD_WRONG_TYPE);
	if ((options & RD_IF_NEW && old) || (options & RD_IF_THERE && !old)) {
		if (work->command == RC_SETNX)
			rd_say(RD_ZERO);
		else if (options & RD_TELLS_OLD && old)
			rd_say_item(old);
		else
			rd_say(RD_NIL);
		return 0;
	}
	if (options & RD_KEEPS_TIME && old)
		work->expires = ((struct rd_item __heap *)old)->expires;
	/* The old value is said before it is overwritten, and taken back without memory. */
	work->rank = work->out;
	if (options & RD_TELLS_OLD) {
		if (old)
			rd_say_item(old);
		else
			rd_say(RD_NIL);
	} else {
		rd_say(work->command == RC_SETNX ? RD_ONE : RD_OK);
	}
	if (!rd_put(RD_AT(arg), RD_LENGTH(arg))) {
		work->out = work->rank;
		rd_say(RD_MEMORY);
	}
	return 0;
}

static __always_inline void rd_get(struct rd_work *work)
{
	__u64 item = work->key_item;

	if (work->command == RC_STRLEN) {
		if (!item)
			rd_say(RD_ZERO);
		else if (rd_type(item) != RD_IS_STRING)
			rd_say(RD_WRONG_TYPE);
		else
			rd_say_number(':', ((struct rd_item __heap *)item)->length);
	} else if (!item) {
		rd_say(RD_NIL);
	} else if (rd_type(item) != RD_IS_STRING) {
		rd_say(work->command == RC_MGET ? RD_NIL : RD_WRONG_TYPE);
	} else {
		rd_say_item(item);
	}
}

/* Reads a value of the heap as an integer, into `number`. */
__noinline int rd_heap_integer(__u64 which)
{
	struct rd_item __heap *item = (struct rd_item __heap *)which;
	volatile __u64 __heap *words;
	struct rd_work *work = rd_work();
	__u64 length;

	XK_USE_HEAP();
	if (!work)
		return 0;
	length = item->length;
	if (length > 20)
		return 0;
	words = (__u64 __heap *)rd_value(item);
	sv_store(&work->in[RD_DIGITS], words[0]);
	if (length > 8)
		sv_store(&work->in[RD_DIGITS + 8], words[1]);
	if (length > 16)
		sv_store(&work->in[RD_DIGITS + 16], words[2]);
	return rd_integer(RD_DIGITS, length);
}

/* Writes a number in digits behind the requests. Its length. */
__noinline __u64 rd_write_digits(__u64 number)
{
	struct rd_work *work = rd_work();
	__u64 out;

	if (!work)
		return 0;
	/* As a reply that is not sent. */
	out = work->out;
	rd_say_signed(number);
	sv_store(&work->in[RD_DIGITS], sv_load(&work->reply[out & RD_OUT_MASK]));
	sv_store(&work->in[RD_DIGITS + 8], sv_load(&work->reply[(out + 8) & RD_OUT_MASK]));
	sv_store(&work->in[RD_DIGITS + 16], sv_load(&work->reply[(out + 16) & RD_OUT_MASK]));
	number = work->out - out;
	work->out = out;
	return number;
}

/* Adds to a number, or says that it overflows. */
static __always_inline int rd_add(struct rd_work *work, __s64 by)
{
	__s64 old = work->number;

	if ((by > 0 && old > (__s64)(~0ull >> 1) - by) ||
	    (by < 0 && old < -(__s64)(~0ull >> 1) - 1 - by)) {
		rd_say(RD_OVERFLOW);
		return 0;
	}
	work->number = old + by;
	return 1;
}

__noinline int rd_count(void)
{
	struct rd_work *work = rd_work();
	__u64 item, length;

	XK_USE_HEAP();
	if (!work)
		return 0;
	item = work->key_item;
	if (item && rd_type(item) != RD_IS_STRING)
		return rd_say(RD_WRONG_TYPE);
	work->number = 0;
	work->expires = 0;
	if (item) {
		work->expires = ((struct rd_item __heap *)item)->expires;
		if (!rd_heap_integer(item))
			return rd_say(RD_NO_INTEGER);
	}
	if (!rd_add(work, work->score))
		return 0;
	work->score = work->number;
	length = rd_write_digits(work->number);
	if (!rd_put(RD_DIGITS, length))
		return rd_say(RD_MEMORY);
	return rd_say_number(':', work->score);
}

/* What INCR and the like add, in `score`. Whether it is right. */
__noinline int rd_prepare_count(void)
{
	struct rd_work *work = rd_work();

	if (!work)
		return 0;
	work->number = 1;
	if (work->args == 3 && !rd_arg_integer(work, 2)) {
		rd_say(RD_NO_INTEGER);
		return 0;
	}
	if (work->command == RC_DECR || work->command == RC_DECRBY) {
		if (work->number == 1ull << 63) {
			rd_say(RD_DECREMENT);
			return 0;
		}
		work->number = -work->number;
	}
	work->score = work->number;
	return 1;
}

/* Commands that are told a key of any type. */
__noinline int rd_any_key(void)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	__u64 command, left;

	XK_USE_HEAP();
	if (!work)
		return 0;
	command = work->command;
	item = (struct rd_item __heap *)work->key_item;
	if (command == RC_TYPE) {
		left = rd_type((__u64)item);
		return rd_say(left == RD_IS_STRING ? RD_STRING : left == RD_IS_HASH ? RD_HASH :
			      left == RD_IS_ZSET ? RD_ZSET : RD_NONE);
	}
	if (command == RC_TTL || command == RC_PTTL) {
		if (!item || !item->expires)
			return rd_say_number(':', item ? -1 : -2);
		/* What moves stays when its time is over. */
		left = item->expires > rd_now(work) ? item->expires - rd_now(work) : 0;
		return rd_say_number(':', command == RC_TTL ? (left + 500) / 1000 : left);
	}
	if (!item) {
		if (command == RC_EXPIRE || command == RC_PEXPIRE || command == RC_PERSIST)
			rd_say(RD_ZERO);
		return 0;
	}
	work->count++;
	if (command == RC_EXISTS)
		return 0;
	if (command == RC_PERSIST) {
		rd_say(item->expires ? RD_ONE : RD_ZERO);
		*(volatile __u64 __heap *)&item->expires = 0;
		return 0;
	}
	if (command == RC_EXPIRE || command == RC_PEXPIRE) {
		rd_say(RD_ONE);
		if ((__s64)work->expires > (__s64)rd_now(work)) {
			rd_expires(work, item, work->expires);
			return 0;
		}
	}
	work->key_item = 0;
	return rd_drop((__u64)item);
}

#endif
