/* SPDX-License-Identifier: GPL-2.0-only */
/* Commands of hashes. */
#ifndef _XK_REDIS_HASHES_H
#define _XK_REDIS_HASHES_H

#include "ranges.h"

/* Gives the field that was sought a value from the request. Whether there was memory. */
__noinline int rd_put_field(__u64 from, __u64 length)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	__u64 made;

	XK_USE_HEAP();
	if (!work)
		return 0;
	item = (struct rd_item __heap *)work->item;
	if (item && sv_words(item->length) == sv_words(length)) {
		rd_fill(rd_value(item), from, length);
		item->length = length;
		return 1;
	}
	made = rd_new(RD_IS_MEMBER, from, length);
	if (!made) {
		rd_empty();
		return 0;
	}
	if (item) {
		rd_replace((__u64)item, made);
		return 1;
	}
	rd_link(made);
	work->count++;
	return 1;
}

__noinline int rd_hset(void)
{
	struct rd_work *work = rd_work();
	__u64 arg;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	switch (work->phase) {
	case 0:
		if (!rd_own(work, RD_IS_HASH, 1))
			return SV_DONE;
		work->index = 2;
		break;
	case 1:
		work->phase = 2;
		if (work->item && work->command == RC_HSETNX)
			break;
		arg = rd_arg(work, work->index - 1);
		if (!rd_put_field(RD_AT(arg), RD_LENGTH(arg))) {
			rd_say(RD_MEMORY);
			return SV_DONE;
		}
		break;
	}
	if (work->index >= work->args) {
		rd_say_number(':', work->count);
		return SV_DONE;
	}
	work->phase = 1;
	work->index += 2;
	return rd_seek(work->index - 2);
}

__noinline int rd_hincrby(void)
{
	struct rd_work *work = rd_work();
	__u64 length;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	if (!work->phase) {
		if (!rd_own(work, RD_IS_HASH, 1))
			return SV_DONE;
		work->phase = 1;
		return rd_seek(2);
	}
	work->number = 0;
	if (work->item && !rd_heap_integer(work->item)) {
		rd_say(RD_NO_HASH_INTEGER);
		return SV_DONE;
	}
	if (!rd_add(work, work->score)) {
		rd_empty();
		return SV_DONE;
	}
	work->score = work->number;
	length = rd_write_digits(work->number);
	if (rd_put_field(RD_DIGITS, length))
		rd_say_number(':', work->score);
	else
		rd_say(RD_MEMORY);
	return SV_DONE;
}

__noinline int rd_hdel(void)
{
	struct rd_work *work = rd_work();

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	switch (work->phase) {
	case 0:
		if (!rd_own(work, RD_IS_HASH, 0))
			return SV_DONE;
		if (!work->key_item) {
			rd_say(RD_ZERO);
			return SV_DONE;
		}
		work->index = 2;
		break;
	case 1:
		work->phase = 2;
		if (work->item) {
			rd_remove_member(work->item);
			work->count++;
		}
		break;
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

/* HGET, HMGET, HEXISTS and HSTRLEN. */
__noinline int rd_hget(void)
{
	struct rd_work *work = rd_work();
	__u64 command;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	command = work->command;
	if (!work->phase) {
		if (!rd_own(work, RD_IS_HASH, 0))
			return SV_DONE;
		work->index = 2;
		if (command == RC_HMGET)
			rd_say_number('*', work->args - 2);
		work->phase = 1;
	} else {
		if (command == RC_HEXISTS)
			rd_say(work->item ? RD_ONE : RD_ZERO);
		else if (command == RC_HSTRLEN)
			rd_say_number(':', work->item ? ((struct rd_item __heap *)work->item)->length : 0);
		else if (work->item)
			rd_say_item(work->item);
		else
			rd_say(RD_NIL);
		work->index++;
	}
	if (work->index >= work->args)
		return SV_DONE;
	work->item = 0;
	return work->key_item ? rd_seek(work->index) : SV_AGAIN;
}

/* HLEN, HGETALL, HKEYS and HVALS. */
__noinline int rd_hall(void)
{
	struct rd_work *work = rd_work();
	struct rd_item __heap *item;
	__u64 command, count;

	XK_USE_HEAP();
	if (!work)
		return SV_DONE;
	command = work->command;
	if (!work->phase) {
		if (!rd_own(work, RD_IS_HASH, 0))
			return SV_DONE;
		if (!work->key_item) {
			rd_say(command == RC_HLEN ? RD_ZERO : RD_EMPTY);
			return SV_DONE;
		}
		count = rd_set_of(work->key_item)->count;
		if (command == RC_HLEN) {
			rd_say_number(':', count);
			return SV_DONE;
		}
		rd_say_number('*', command == RC_HGETALL ? 2 * count : count);
		work->link = (__u64)rd_set_of(work->key_item)->oldest;
		work->phase = 1;
	}
	item = (struct rd_item __heap *)work->link;
	if (!item)
		return SV_DONE;
	if (command != RC_HVALS)
		rd_say_string((__u64)item->data, item->key_length);
	if (command != RC_HKEYS)
		rd_say_item((__u64)item);
	work->link = (__u64)item->newer;
	return SV_AGAIN;
}

#endif
