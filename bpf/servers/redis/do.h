/* SPDX-License-Identifier: GPL-2.0-only */
/* From a packet to commands, and from a command to its steps. */
#ifndef _XK_REDIS_DO_H
#define _XK_REDIS_DO_H

#include "hashes.h"
#include "keyspace.h"
#include "owners.h"

/* The phase of a command whose key was not found yet. */
#define RD_UNKNOWN	99

/* Reads the words behind the key, before it is known. Whether they are right. */
__noinline int rd_prepare(void)
{
	struct rd_work *work = rd_work();

	if (!work)
		return 0;
	switch (work->command) {
	case RC_SET:
		return rd_prepare_set();
	case RC_SETNX:
		work->options = RD_IF_NEW;
		return 1;
	case RC_INCR:
	case RC_DECR:
	case RC_INCRBY:
	case RC_DECRBY:
		return rd_prepare_count();
	case RC_EXPIRE:
	case RC_PEXPIRE:
		work->foreign = work->args > 3;
		return !work->foreign && rd_time(2, work->command == RC_EXPIRE, 0);
	case RC_ZADD:
	case RC_ZINCRBY:
		return rd_prepare_zadd();
	case RC_ZRANGE:
	case RC_ZREVRANGE:
	case RC_ZRANGEBYSCORE:
	case RC_ZCOUNT:
		return rd_prepare_range();
	case RC_XKFLUSH:
	case RC_XKKEYS:
	case RC_XKSIZE:
		return rd_prepare_shard();
	case RC_HSET:
		if (work->args & 1) {
			rd_say_named(RD_ARITY);
			return 0;
		}
		return rd_are_short(2, 2);
	case RC_HINCRBY:
		if (!rd_arg_integer(work, 3)) {
			rd_say(RD_NO_INTEGER);
			return 0;
		}
		work->score = work->number;
		return rd_are_short(2, 2);
	case RC_HSETNX:
		return rd_are_short(2, 2);
	case RC_ZREM:
	case RC_ZSCORE:
	case RC_ZRANK:
	case RC_ZREVRANK:
	case RC_HGET:
	case RC_HDEL:
	case RC_HEXISTS:
	case RC_HMGET:
	case RC_HSTRLEN:
		return rd_are_short(2, 1);
	}
	return 1;
}

/* One step of the command with its key, which was found. */
static __always_inline int rd_step(struct rd_work *work)
{
	switch (work->command) {
	case RC_GET:
	case RC_MGET:
	case RC_STRLEN:
		rd_get(work);
		return SV_DONE;
	case RC_SET:
	case RC_SETNX:
		rd_set();
		return SV_DONE;
	case RC_INCR:
	case RC_DECR:
	case RC_INCRBY:
	case RC_DECRBY:
		rd_count();
		return SV_DONE;
	case RC_ZADD:
	case RC_ZINCRBY:
		return rd_zadd();
	case RC_ZREM:
		return rd_zrem();
	case RC_ZCARD:
	case RC_ZSCORE:
	case RC_ZRANK:
	case RC_ZREVRANK:
		return rd_zget();
	case RC_ZRANGE:
	case RC_ZREVRANGE:
	case RC_ZRANGEBYSCORE:
	case RC_ZCOUNT:
		return rd_zrange();
	case RC_HSET:
	case RC_HSETNX:
		return rd_hset();
	case RC_HINCRBY:
		return rd_hincrby();
	case RC_HDEL:
		return rd_hdel();
	case RC_HGET:
	case RC_HMGET:
	case RC_HEXISTS:
	case RC_HSTRLEN:
		return rd_hget();
	case RC_HLEN:
	case RC_HGETALL:
	case RC_HKEYS:
	case RC_HVALS:
		return rd_hall();
	case RC_XKCLAIM:
		rd_claim();
		return SV_DONE;
	case RC_XKGIVE:
		rd_move();
		return SV_DONE;
	case RC_XKFLUSH:
		return rd_flush();
	case RC_XKKEYS:
		return rd_list_keys();
	case RC_XKSIZE:
		rd_size();
		return SV_DONE;
	}
	rd_any_key();
	return SV_DONE;
}

/* The key was found, or is not there: one whose time is over is not. */
static __always_inline int rd_open(struct rd_work *work)
{
	struct rd_item __heap *item;

	item = (struct rd_item __heap *)work->item;
	/* What moves stays until it has moved. */
	if (item && item->expires && item->expires <= rd_now(work) && !item->moves) {
		rd_drop((__u64)item);
		item = (struct rd_item __heap *)0;
	}
	work->key_item = (__u64)item;
	work->phase = 0;
	if (item && work->command < RC_XKCLAIM &&
	    (item->type == RD_IS_FOREIGN || (item->moves && sv_connection(work)->asks != SV_MOVES))) {
		if (work->args == 2 || !rd_commands[work->slot & 255].keys) {
			work->key_item = 0;
			work->foreign = 1;
			return SV_DONE;
		}
		/* With another key beside it, it has become foreign only now. What moves is still here. */
		if (item->type == RD_IS_FOREIGN)
			work->key_item = 0;
	}
	if (item && item->type == RD_IS_ZSET && rd_set_of((__u64)item)->change)
		return RD_SETTLE;
	return SV_AGAIN;
}

/* The last key of a command is done with. */
static __always_inline void rd_end_keys(struct rd_work *work)
{
	__u64 command = work->command;

	work->last = 0;
	if (command == RC_DEL || command == RC_UNLINK || command == RC_EXISTS)
		rd_say_number(':', work->count);
}

/* Goes on with the command, whose key is locked. */
static __always_inline int rd_go_on(struct rd_work *work)
{
	int act;

	if (work->phase == RD_UNKNOWN)
		act = rd_open(work);
	else if (work->settling)
		act = rd_settle();
	else
		act = SV_AGAIN;
	/* What was just settled is followed by the command. */
	if (act == SV_AGAIN)
		act = rd_step(work);
	if (act == RD_SETTLE)
		act = rd_settle();
	if (act != SV_DONE)
		return act;
	work->locked = 0;
	if (!work->foreign && work->key_index > work->last)
		rd_end_keys(work);
	return RD_UNLOCK;
}

/* Whether there is nothing more to do for the packet. */
static __always_inline int rd_is_done(struct rd_work *work)
{
	return !work->last && work->at == work->end && work->copied == work->packet;
}

/* The next key of the command. */
static __always_inline int rd_next_key(struct rd_work *work)
{
	__u64 arg;

	arg = rd_arg(work, work->key_index);
	work->key_index++;
	if (!rd_key(RD_AT(arg), RD_LENGTH(arg))) {
		work->foreign = 1;
		return SV_AGAIN;
	}
	work->owner = 0;
	/* Its word is the number of a shard, which may not be there. */
	if (work->command >= RC_XKFLUSH) {
		work->hash = rd_arg_integer(work, 1) ? work->number << 58 : 0;
		if (!rd_store || !rd_store->shards[work->hash >> 58]) {
			rd_say_number(':', work->command == RC_XKSIZE ? 0 : RD_BUCKETS);
			work->last = 0;
			return SV_AGAIN;
		}
	}
	if (rd_store)
		work->shard = (__u64)rd_store->shards[work->hash >> 58];
	if (!rd_store || !work->shard)
		work->shard = rd_shard(work->hash);
	if (!work->shard) {
		rd_say(RD_MEMORY);
		work->last = 0;
		return SV_AGAIN;
	}
	work->locked = 1;
	work->key_item = 0;
	work->phase = RD_UNKNOWN;
	work->failed = 0;
	work->settling = 0;
	return RD_LOCK;
}

/* Answers what needs no key. Whether the command does. */
static __always_inline int rd_is_ping(struct rd_work *work)
{
	__u64 arg = work->arg[1];

	if (work->command != RC_PING)
		return 0;
	if (work->args == 1) {
		rd_say(RD_PONG);
		return 1;
	}
	rd_say_number('$', RD_LENGTH(arg));
	rd_say_in(RD_AT(arg), RD_LENGTH(arg));
	rd_say_end(work);
	return 1;
}

/* The request is not answered here, nor what follows it in the packet. */
static __always_inline int rd_not_mine(struct rd_work *work)
{
	work->last = 0;
	/* The head of a reply to MGET is taken back. */
	work->out = work->mark;
	if (sv_connection(work)->asks) {
		rd_say(RD_NOT_MINE);
		return SV_AGAIN;
	}
	work->at = work->begin;
	work->passes = 1;
	return SV_AGAIN;
}

/* Begins with the next request. RD_LOCK: its first key is next. */
static __always_inline int rd_next_request(struct rd_work *work)
{
	__u64 parsed;
	__u32 slot;
	int act;

	if (rd_is_done(work))
		return SV_DONE;
	work->begin = work->at;
	work->mark = work->out;
	parsed = rd_parse(work->at);
	if (parsed == RD_MORE) {
		act = sv_load_more(work);
		work->begin = work->at;
		return act;
	}
	if (parsed == RD_OTHER)
		return rd_not_mine(work);
	work->at = work->next;
	if (!work->args)
		return SV_AGAIN;
	slot = rd_slot(work);
	if (slot > 255)
		return rd_not_mine(work);
	slot &= 255;
	work->slot = slot;
	work->command = rd_commands[slot].number;
	if (work->command >= RC_XKCLAIM && !sv_connection(work)->asks)
		return rd_not_mine(work);
	/* Some of several keys may be foreign. */
	if (rd_commands[slot].keys && work->args > 2 && rd_store && rd_store->foreign)
		return rd_not_mine(work);
	if (work->args < rd_commands[slot].least || work->args > rd_commands[slot].most) {
		rd_say_named(RD_ARITY);
		return SV_AGAIN;
	}
	work->count = 0;
	work->options = 0;
	work->expires = 0;
	work->offset = 0;
	if (rd_is_ping(work) || (work->command > RD_PLAIN && !rd_prepare()))
		return SV_AGAIN;
	work->key_index = 1;
	work->last = rd_commands[slot].keys ? work->args - 1 : 1;
	if (work->command == RC_MGET)
		rd_say_number('*', work->last);
	return RD_LOCK;
}

/* The next request, or the next key of this one. */
static __always_inline int rd_next(struct rd_work *work)
{
	int act = RD_LOCK;

	if (work->foreign) {
		work->foreign = 0;
		return rd_not_mine(work);
	}
	if (!work->last)
		act = rd_next_request(work);
	return act == RD_LOCK ? rd_next_key(work) : act;
}

/* Goes on until the program must do something. */
__noinline int rd_turn(void)
{
	struct rd_work *work = rd_work();

	XK_USE_HEAP();
	if (!work || work->broken)
		return SV_DONE;
	if (work->passes)
		return sv_pass_on(work);
	/* Until its key is found, a command may turn out not to be answered here. */
	if (work->out > RD_FLUSH && !(work->locked && work->phase == RD_UNKNOWN))
		return SV_SEND;
	return work->locked ? rd_go_on(work) : rd_next(work);
}

#endif
