/* SPDX-License-Identifier: GPL-2.0-only */
/* The commands that are served. */
#ifndef _XK_REDIS_TABLE_H
#define _XK_REDIS_TABLE_H

#include "parse.h"

/*
 * The last five are for xk-redis. XKCLAIM key r|w asks whose a key is: 1 if it is redis-server's,
 * which with `w` a key becomes that does not exist; else its type here, or "moving". XKGIVE key step
 * begins to hand a key to redis-server, ends that, or goes back (b, e, a): 1 if it has done that, 2 if
 * the key is redis-server's. XKFLUSH shard bucket a|e drops all keys, or those whose time is over, and
 * returns the bucket to go on with. XKKEYS shard bucket returns keys, and then that number, as replies of
 * their own. XKSIZE shard returns how many keys are answered here.
 *
 * The name of a command, how many words it has with its name, and whether all words behind the name
 * are keys. All others have one key, their second word.
 */
#define RD_COMMANDS(command)			\
	command(PING, 1, 2, 0)			\
	command(GET, 2, 2, 0)			\
	command(STRLEN, 2, 2, 0)		\
	command(MGET, 2, RD_ARGS, 1)		\
	command(DEL, 2, RD_ARGS, 1)		\
	command(UNLINK, 2, RD_ARGS, 1)		\
	command(EXISTS, 2, RD_ARGS, 1)		\
	command(TYPE, 2, 2, 0)			\
	command(TTL, 2, 2, 0)			\
	command(PTTL, 2, 2, 0)			\
	command(PERSIST, 2, 2, 0)		\
	command(ZCARD, 2, 2, 0)			\
	command(HLEN, 2, 2, 0)			\
	command(HGETALL, 2, 2, 0)		\
	command(HKEYS, 2, 2, 0)			\
	command(HVALS, 2, 2, 0)			\
	command(SET, 3, RD_ARGS, 0)		\
	command(SETNX, 3, 3, 0)			\
	command(INCR, 2, 2, 0)			\
	command(DECR, 2, 2, 0)			\
	command(INCRBY, 3, 3, 0)		\
	command(DECRBY, 3, 3, 0)		\
	command(EXPIRE, 3, RD_ARGS, 0)		\
	command(PEXPIRE, 3, RD_ARGS, 0)		\
	command(ZADD, 4, RD_ARGS, 0)		\
	command(ZREM, 3, RD_ARGS, 0)		\
	command(ZSCORE, 3, 3, 0)		\
	command(ZINCRBY, 4, 4, 0)		\
	command(ZRANK, 3, 3, 0)			\
	command(ZREVRANK, 3, 3, 0)		\
	command(ZRANGE, 4, RD_ARGS, 0)		\
	command(ZREVRANGE, 4, 5, 0)		\
	command(ZRANGEBYSCORE, 4, RD_ARGS, 0)	\
	command(ZCOUNT, 4, 4, 0)		\
	command(HSET, 4, RD_ARGS, 0)		\
	command(HSETNX, 4, 4, 0)		\
	command(HGET, 3, 3, 0)			\
	command(HDEL, 3, RD_ARGS, 0)		\
	command(HEXISTS, 3, 3, 0)		\
	command(HMGET, 3, RD_ARGS, 0)		\
	command(HINCRBY, 4, 4, 0)		\
	command(HSTRLEN, 3, 3, 0)		\
	command(XKCLAIM, 3, 3, 0)		\
	command(XKGIVE, 3, 3, 0)		\
	command(XKFLUSH, 4, 4, 0)		\
	command(XKKEYS, 3, 3, 0)		\
	command(XKSIZE, 2, 2, 0)

/* Up to here, commands have no words that are read before their key is found (`rd_prepare()`). */
#define RD_PLAIN	RC_HVALS

#define RD_NUMBER_OF(name, least, most, keys)	RC_##name,
enum rd_commands { RC_NONE, RD_COMMANDS(RD_NUMBER_OF) RC_COMMANDS };

struct rd_command {
	__u64 name[2];
	__u32 number;
	__u32 least;
	__u32 most;
	__u32 keys;
};

/* With this factor, each command has a slot of its own. */
#define RD_FACTOR	0x9531985d5d9dc9f9ull
#define RD_SLOT(word, rest)	(((word) + 3 * (rest)) * RD_FACTOR >> 56)

#define RD_ENTRY(command, words, up_to, all)				\
	[RD_SLOT(SV_WORD(#command), SV_REST(#command))] = {		\
		.name = { SV_WORD(#command), SV_REST(#command) },	\
		.number = RC_##command, .least = words, .most = up_to, .keys = all,	\
	},

const volatile struct rd_command rd_commands[256] = { RD_COMMANDS(RD_ENTRY) };

/* Letters in upper case. Other bytes may change, too, but not into letters. */
static __always_inline __u64 rd_upper(__u64 eight)
{
	__u64 letters = eight & 0x4040404040404040ull;

	return eight & ~(letters >> 1);
}

/* The slot of the command that a request names, or 256. */
static __always_inline __u32 rd_slot(struct rd_work *work)
{
	__u64 at, length, word, rest;
	__u32 slot;

	at = RD_AT(work->arg[0]);
	length = RD_LENGTH(work->arg[0]);
	if (length > 16)
		return 256;
	word = rd_upper(sv_first(rd_eight(work, at), length));
	rest = length > 8 ? rd_upper(sv_first(rd_eight(work, at + 8), length - 8)) : 0;
	slot = RD_SLOT(word, rest) & 255;
	if (!length || rd_commands[slot].name[0] != word || rd_commands[slot].name[1] != rest)
		return 256;
	return slot;
}

/* Says an error with the name of the command in lower case. */
__noinline int rd_say_named(__u32 which)
{
	struct rd_work *work = rd_work();
	__u64 length, at;

	if (!work)
		return 0;
	rd_say(which);
	at = RD_AT(work->arg[0]);
	length = RD_LENGTH(work->arg[0]);
	if (length > 16)
		length = 16;
	sv_store(&work->reply[work->out & RD_OUT_MASK],
		 rd_eight(work, at) | 0x2020202020202020ull);
	sv_store(&work->reply[(work->out + 8) & RD_OUT_MASK],
		 rd_eight(work, at + 8) | 0x2020202020202020ull);
	work->out += length;
	return rd_say(RD_ARITY_END);
}

#endif
