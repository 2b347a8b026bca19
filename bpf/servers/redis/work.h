/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a packet asks for, and the replies, on one CPU: requests of the protocol (RESP), numbers, and
 * what is answered.
 */
#ifndef _XK_REDIS_WORK_H
#define _XK_REDIS_WORK_H

#include "../text.h"

/* Buffers are as long as the index into them goes. Numbers to store are behind the requests. */
#define RD_MASK		8191
#define RD_DIGITS	8096
/* So much is worked on at once. */
#define RD_MOST		8064
#define RD_OUT_MASK	16383
#define RD_SLACK	64
/* Replies leave when there are so many bytes. One step adds at most a value, and a little. */
#define RD_FLUSH	7000

/* Words of a request. */
#define RD_ARGS		64
/* The longest key, member or field. */
#define RD_KEY		512
#define RD_KEY_WORDS	(RD_KEY / 8)

/* Where one begins, and its length above. */
#define RD_AT(arg)	((__u32)(arg))
#define RD_LENGTH(arg)	((arg) >> 32)

struct rd_work {
	__u64 packet;		/* its length */
	__u64 copied;		/* of it */
	__u64 end;		/* behind what has arrived */
	__u64 at;		/* the next request */
	__u64 next;		/* the one behind it */
	__u64 out;		/* behind the reply */
	__u64 broken;		/* the connection ends after the reply */
	__u64 now;		/* see rd_now(); 0: nobody has asked for it */
	__u64 args;		/* words of the request */
	__u64 slot;		/* of the command in the table */
	__u64 command;		/* its number */
	__u64 index;		/* the word that is worked on */
	__u64 key_index;	/* the next word that is a key */
	__u64 last;		/* the last one; 0: no command is under way */
	__u64 phase;		/* of the command */
	__u64 count;		/* what it will answer */
	__u64 options;
	__u64 number;		/* what was read last */
	__u64 expires;
	__u64 offset;		/* of a range: items that are left out */
	__u64 limit;		/* and items that are left */
	__u64 low;		/* scores of a range, or ranks */
	__u64 high;
	__u64 score;
	__u64 owner;		/* of what is sought: 0 for a key */
	__u64 hash;		/* of what is sought */
	__u64 key_length;
	__u64 shard;		/* of the key */
	__u64 key_item;		/* the item of the key */
	__u64 item;		/* what was found */
	__u64 rank;
	__u64 link;		/* an item of a skip list */
	__u64 locked;		/* a command is under way, which has the lock, or gets it */
	__u64 begin;		/* where the request begins */
	__u64 mark;		/* where its reply does */
	__u64 passes;		/* what is left of the packet is passed on */
	__u64 foreign;		/* the request is not answered here */
	__u64 connection;	/* struct sv_connection */
	__u64 sought;		/* a score in a list, and a member or 0 */
	__u64 sought_member;
	__u64 settling;		/* how far a change of the list has come */
	__u64 failed;		/* there was no memory for the list */
	__u64 arg[RD_ARGS];
	__s64 scores[RD_ARGS];	/* that the words say */
	__u64 key[RD_KEY_WORDS + 1];	/* filled up with zeros */
	__u8 in[RD_MASK + 1 + RD_SLACK];
	__u8 reply[RD_OUT_MASK + 1 + RD_SLACK];
};

/* A packet is processed without another one on the same CPU: softirqs are disabled. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rd_work);
} rd_works SEC(".maps");

static __always_inline struct rd_work *rd_work(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&rd_works, &zero);
}

/* The time of the packet, in milliseconds since 1970. */
static __always_inline __u64 rd_now(struct rd_work *work)
{
	if (!work->now)
		work->now = bpf_ktime_get_tai_ns() / 1000000;
	return work->now;
}

/* All that is answered. */
enum rd_text {
	RD_OK, RD_PONG, RD_NIL, RD_ZERO, RD_ONE, RD_EMPTY, RD_NO_STRING, RD_SYNTAX, RD_NO_INTEGER,
	RD_NO_FLOAT, RD_NO_BOUND, RD_OVERFLOW, RD_DECREMENT, RD_BAD_EXPIRE, RD_WRONG_TYPE,
	RD_MEMORY, RD_ARITY, RD_ARITY_END, RD_MOVING, RD_XX_NX, RD_GT_LT,
	RD_ONE_PAIR, RD_NAN, RD_NONE, RD_STRING,
	RD_HASH, RD_ZSET, RD_NO_HASH_INTEGER, RD_NOT_MINE,
	RD_TEXTS
};

int rd_say(__u32 which);

#define SV_WORK		struct rd_work
#define SV_GET_WORK()	rd_work()
#define SV_MASK		RD_MASK
#define SV_MOST		RD_MOST
#define SV_OUT_MASK	RD_OUT_MASK
#define SV_NO_MEMORY()	rd_say(RD_MEMORY)

#include "../stream.h"

static __always_inline __u64 rd_eight(struct rd_work *work, __u64 at)
{
	return sv_load(&work->in[at & RD_MASK]);
}

static __always_inline __u8 rd_byte(struct rd_work *work, __u64 at)
{
	return work->in[at & RD_MASK];
}

static __always_inline __u64 rd_arg(struct rd_work *work, __u64 index)
{
	return work->arg[index & (RD_ARGS - 1)];
}

/* What the program does next, beside `enum sv_acts`. Of a command, SV_DONE: it has come to its end. */
enum rd_acts {
	RD_LOCK = SV_ACTS,	/* takes the lock of the key's shard, and finds the key */
	RD_UNLOCK,
	RD_FIND,	/* finds the key, or the member, that is sought */
	RD_SEEK,	/* searches the list of the sorted set */
	RD_LINK,	/* finds the link of a rank there */
	RD_SETTLE,	/* changes the list: rd_settle() */
};

#define RD_TEXT_WORDS	11

struct rd_said {
	__u64 length;
	union {
		char text[8 * RD_TEXT_WORDS];
		__u64 words[RD_TEXT_WORDS];
	};
};

#define RD_SAID(said)	{ .length = sizeof(said) - 1, .text = said }

const volatile struct rd_said rd_texts[64] = {
	[RD_OK] = RD_SAID("+OK\r\n"),
	[RD_PONG] = RD_SAID("+PONG\r\n"),
	[RD_NIL] = RD_SAID("$-1\r\n"),
	[RD_ZERO] = RD_SAID(":0\r\n"),
	[RD_ONE] = RD_SAID(":1\r\n"),
	[RD_EMPTY] = RD_SAID("*0\r\n"),
	[RD_NO_STRING] = RD_SAID("$0\r\n\r\n"),
	[RD_SYNTAX] = RD_SAID("-ERR syntax error\r\n"),
	[RD_NO_INTEGER] = RD_SAID("-ERR value is not an integer or out of range\r\n"),
	[RD_NO_FLOAT] = RD_SAID("-ERR value is not a valid float\r\n"),
	[RD_NO_BOUND] = RD_SAID("-ERR min or max is not a float\r\n"),
	[RD_OVERFLOW] = RD_SAID("-ERR increment or decrement would overflow\r\n"),
	[RD_DECREMENT] = RD_SAID("-ERR decrement would overflow\r\n"),
	[RD_BAD_EXPIRE] = RD_SAID("-ERR invalid expire time in '"),
	[RD_WRONG_TYPE] =
		RD_SAID("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
	[RD_MEMORY] = RD_SAID("-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
	[RD_ARITY] = RD_SAID("-ERR wrong number of arguments for '"),
	[RD_ARITY_END] = RD_SAID("' command\r\n"),
	[RD_MOVING] = RD_SAID("+moving\r\n"),
	[RD_XX_NX] =
		RD_SAID("-ERR XX and NX options at the same time are not compatible\r\n"),
	[RD_GT_LT] =
		RD_SAID("-ERR GT, LT, and/or NX options at the same time are not compatible\r\n"),
	[RD_ONE_PAIR] =
		RD_SAID("-ERR INCR option supports a single increment-element pair\r\n"),
	[RD_NAN] = RD_SAID("-ERR resulting score is not a number (NaN)\r\n"),
	[RD_NONE] = RD_SAID("+none\r\n"),
	[RD_STRING] = RD_SAID("+string\r\n"),
	[RD_HASH] = RD_SAID("+hash\r\n"),
	[RD_ZSET] = RD_SAID("+zset\r\n"),
	[RD_NOT_MINE] = RD_SAID("-XKPASS\r\n"),
	[RD_NO_HASH_INTEGER] = RD_SAID("-ERR hash value is not an integer\r\n"),
};

/* Adds a text to the reply. */
__noinline int rd_say(__u32 which)
{
	struct rd_work *work = rd_work();
	__u64 at, turn, length;

	which &= 63;
	if (!work)
		return 0;
	length = rd_texts[which].length;
	at = work->out;
	sv_turns (turn, RD_TEXT_WORDS) {
		if (8 * turn >= length)
			break;
		sv_store(&work->reply[(at + 8 * turn) & RD_OUT_MASK], rd_texts[which].words[turn]);
	}
	work->out = at + length;
	return 0;
}

/* Adds a few bytes. */
static __always_inline void rd_say_bytes(struct rd_work *work, __u64 bytes, __u64 length)
{
	sv_store(&work->reply[work->out & RD_OUT_MASK], bytes);
	work->out += length;
}

/* Adds a number without a sign. */
__noinline int rd_say_digits(__u64 number)
{
	struct rd_work *work = rd_work();
	__u64 turn, length = 0, rest = number, at;

	if (!work)
		return 0;
	sv_turns (turn, 20) {
		length++;
		rest /= 10;
		if (!rest)
			break;
	}
	at = work->out + length;
	work->out = at;
	sv_turns (turn, 20) {
		at--;
		work->reply[at & RD_OUT_MASK] = '0' + number % 10;
		number /= 10;
		if (!number)
			break;
	}
	return 0;
}

static __always_inline void rd_say_end(struct rd_work *work)
{
	rd_say_bytes(work, '\r' | '\n' << 8, 2);
}

/* Adds a number with a sign. */
__noinline int rd_say_signed(__u64 number)
{
	struct rd_work *work = rd_work();

	if (!work)
		return 0;
	if ((__s64)number < 0) {
		rd_say_bytes(work, '-', 1);
		number = -number;
	}
	return rd_say_digits(number);
}

/* Adds a line with a number of one or two digits, as most have: `mark` is ':', '*' or '$'. */
static __always_inline void rd_say_short(struct rd_work *work, __u32 mark, __u64 number)
{
	/* A tenth, of numbers below 100. The JIT saves registers around a division. */
	__u64 tens = number * 103 >> 10;

	if (number < 10)
		rd_say_bytes(work, (__u8)mark | ('0' + number) << 8 | '\r' << 16 | '\n' << 24, 4);
	else
		rd_say_bytes(work, (__u8)mark | ('0' + tens) << 8 | ('0' + number - 10 * tens) << 16 |
			     (__u64)'\r' << 24 | (__u64)'\n' << 32, 5);
}

/* Adds a line with a number. */
__noinline int rd_say_number(__u32 mark, __u64 number)
{
	struct rd_work *work = rd_work();

	if (!work)
		return 0;
	if (number < 100) {
		rd_say_short(work, mark, number);
		return 0;
	}
	rd_say_bytes(work, (__u8)mark, 1);
	rd_say_signed(number);
	rd_say_end(work);
	return 0;
}

/* Adds bytes of the request. */
__noinline int rd_say_in(__u64 from, __u64 length)
{
	struct rd_work *work = rd_work();
	__u64 at, out;

	if (!work)
		return 0;
	out = work->out;
	sv_turns (at, RD_MOST / 8) {
		if (8 * at >= length)
			break;
		sv_store(&work->reply[(out + 8 * at) & RD_OUT_MASK], rd_eight(work, from + 8 * at));
	}
	work->out = out + length;
	return 0;
}

/* Adds bytes of the heap: four words at once, and then fewer. */
__noinline int rd_say_heap(__u64 from, __u64 length)
{
	volatile __u64 __heap *words = (__u64 __heap *)from;
	struct rd_work *work = rd_work();
	__u64 at, out, done;
	__u8 *to;

	XK_USE_HEAP();
	if (!work)
		return 0;
	out = work->out;
	sv_turns (at, RD_MOST / 32) {
		if (at >= length / 32)
			break;
		to = &work->reply[(out + 32 * at) & RD_OUT_MASK];
		sv_store(to, words[4 * at]);
		sv_store(to + 8, words[4 * at + 1]);
		sv_store(to + 16, words[4 * at + 2]);
		sv_store(to + 24, words[4 * at + 3]);
	}
	done = 4 * at;
	to = &work->reply[(out + 8 * done) & RD_OUT_MASK];
	if (8 * done < length)
		sv_store(to, words[done]);
	if (8 * done + 8 < length)
		sv_store(to + 8, words[done + 1]);
	if (8 * done + 16 < length)
		sv_store(to + 16, words[done + 2]);
	if (8 * done + 24 < length)
		sv_store(to + 24, words[done + 3]);
	work->out = out + length;
	return 0;
}

/* Adds a string of the heap. */
__noinline int rd_say_string(__u64 from, __u64 length)
{
	struct rd_work *work = rd_work();

	if (!work)
		return 0;
	if (length < 100)
		rd_say_short(work, '$', length);
	else
		rd_say_number('$', length);
	rd_say_heap(from, length);
	rd_say_end(work);
	return 0;
}

#endif
