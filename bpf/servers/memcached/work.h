/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A request and its reply, on one CPU: lines, words and numbers of the text, and what is answered.
 * Functions that are not static have the form that ../text.h describes.
 */
#ifndef _XK_MEMCACHED_WORK_H
#define _XK_MEMCACHED_WORK_H

#include "../text.h"

/*
 * Buffers are as long as the index into them goes, and what is written or read at its end. Numbers
 * that are written, or read from a value, are behind the request.
 */
#define MC_SLACK	64
#ifdef MC_STREAM
/* A TCP connection: memcached's own server answers what is not answered here. */
#define MC_IS_STREAM	1
#define MC_FRAME	0
/* So much is worked on at once. A request is whole in it, with a piece of the packet behind it. */
#define MC_MOST		8064
#define MC_MASK		8191
/* Beside digits and a value, which are as long as the buffer's end. */
#define MC_DIGITS	8160
#define MC_COUNTED	8080
#define MC_OUT_MASK	16383
#define MC_OUT_MOST	16384
/* Longer values are memcached's. */
#define MC_VALUE	7168
/* Replies leave when there are so many bytes. One step adds at most an item. */
#define MC_FLUSH	7000
#else
#define MC_IS_STREAM	0
/* A datagram has a header of its own before the text. */
#define MC_FRAME	8
/* What a datagram of an Ethernet network carries, without the headers of IP and UDP. */
#define MC_MOST		1472
#define MC_MASK		2047
#define MC_DIGITS	2016
#define MC_COUNTED	1600
#define MC_OUT_MASK	MC_MASK
#define MC_OUT_MOST	MC_MOST
/* What no datagram carries cannot be read. */
#define MC_VALUE	MC_MOST
#endif

/* The length of a key that the protocol permits. */
#define MC_KEY		250
#define MC_KEY_WORDS	32

/*
 * Words of a command that count: where one begins, and its length above. More are an error in all
 * commands but those of several keys.
 */
#define MC_WORDS	8

struct mc_work {
	__u64 end;		/* behind the request */
	__u64 at;		/* what is read next */
	__u64 line;		/* the end of this line, without the characters that end it */
	__u64 next;		/* the next line */
	__u64 out;		/* behind the reply */
	__u64 began;		/* where the reply of this command begins */
	__u64 full;		/* it does not fit */
	__u64 now;		/* seconds since 1970 */
	__u64 spec;		/* the command */
	__u64 keys;		/* of this command were asked for; 0: no command of several keys */
	__u64 quiet;		/* no answer is wanted */
	__u64 number;		/* what was read last */
	__u64 numbers[4];	/* of the command, in its order */
	__u64 exptime;		/* seconds since 1970; 0: never */
	__u64 value;		/* where it begins in the request */
	__u64 length;
	__u64 hash;		/* of the key */
	__u64 key_length;
	__u64 shard;		/* of the key */
	__u64 item;		/* with the key */
	__u64 made;		/* a new one */
#ifdef MC_STREAM
	__u64 packet;		/* its length */
	__u64 copied;		/* of it */
	__u64 begin;		/* where the command begins */
	__u64 first;		/* where its first key does, of several */
	__u64 rest;		/* behind all that has arrived, while the head of a command is passed on */
	__u64 word_at;		/* where the key that was read last begins */
	__u64 broken;		/* the connection ends after the reply */
	__u64 passes;		/* what is left of the packet is passed on */
	__u64 foreign;		/* the command is not answered here */
	__u64 connection;	/* struct sv_connection */
#endif
	__u64 words[MC_WORDS];
	__u64 key[MC_KEY_WORDS + 1];	/* filled up with zeros */
	__u8 in[MC_MASK + 1 + MC_SLACK];
	__u8 reply[MC_OUT_MASK + 1 + MC_SLACK];
};

/* A request runs from its packet to its reply without another one on the same CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mc_work);
} mc_works SEC(".maps");

static __always_inline struct mc_work *mc_work(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&mc_works, &zero);
}

/* All that is answered. */
enum mc_text {
	MC_ERROR, MC_FORMAT, MC_USAGE, MC_BAD_TIME, MC_BAD_DELTA, MC_NO_NUMBER, MC_BAD_DATA, MC_PACKETS,
	MC_NO_ROOM, MC_NO_MEMORY, MC_TOO_LARGE, MC_STORED, MC_NOT_STORED, MC_EXISTS, MC_NOT_FOUND,
	MC_DELETED, MC_TOUCHED, MC_OK, MC_END, MC_VERSION,
	MC_STAT_ITEMS, MC_STAT_GETS, MC_STAT_SETS, MC_STAT_HITS, MC_STAT_MISSES, MC_STAT_EVICTED,
	MC_NOT_MINE, MC_NONE, MC_NOTHING
};

#ifdef MC_STREAM

int mc_say(__u32 which);

#define SV_WORK		struct mc_work
#define SV_GET_WORK()	mc_work()
#define SV_MASK		MC_MASK
#define SV_MOST		MC_MOST
#define SV_OUT_MASK	MC_OUT_MASK
#define SV_NO_MEMORY()	mc_say(MC_NO_MEMORY)

#include "../stream.h"

#endif

#define MC_ONES		0x0101010101010101ull
#define MC_TOPS		0x8080808080808080ull

static __always_inline __u64 mc_eight(struct mc_work *work, __u64 at)
{
	return sv_load(&work->in[at & MC_MASK]);
}

/* How many bytes are before the first of eight that is marked by its top bit; one is. */
static __always_inline __u64 mc_before(__u64 marks)
{
	marks >>= 7;
	return (((marks & -marks) - 1) & MC_ONES) * MC_ONES >> 56;
}

/* Where the line that begins here ends; at the end of the request if it does not. */
__noinline __u64 mc_line_end(__u64 at)
{
	struct mc_work *work = mc_work();
	__u64 marks, turn, end;

	if (!work)
		return 0;
	end = work->end;
	sv_turns (turn, MC_MOST / 8) {
		if (at >= end)
			break;
		marks = mc_eight(work, at) ^ '\n' * MC_ONES;
		marks = (marks - MC_ONES) & ~marks & MC_TOPS;
		if (marks) {
			at += mc_before(marks);
			break;
		}
		at += 8;
	}
	return at < end ? at : end;
}

/*
 * Where the word that begins here ends: at a space, a zero, or the end of the line. One with more
 * control characters than a key may have is cut; there is no such word in a command.
 */
__noinline __u64 mc_word_end(__u64 at)
{
	struct mc_work *work = mc_work();
	__u64 marks, turn, line;
	__u8 byte;

	if (!work)
		return 0;
	line = work->line;
	sv_turns (turn, MC_KEY + 14) {
		if (at >= line)
			break;
		marks = mc_eight(work, at);
		/* Bytes up to a space. Of those marked, the first one is right. */
		marks = (marks - (' ' + 1) * MC_ONES) & ~marks & MC_TOPS;
		if (!marks) {
			at += 8;
			continue;
		}
		at += mc_before(marks);
		byte = work->in[at & MC_MASK];
		if (byte == ' ' || !byte)
			break;
		at++;
	}
	return at < line ? at : line;
}

/* Reads the next word of the line: where it begins, and its length above; 0 if there is none. */
__noinline __u64 mc_read_word(void)
{
	struct mc_work *work = mc_work();
	__u64 at, turn, line, length;

	if (!work)
		return 0;
	at = work->at;
	line = work->line;
	sv_turns (turn, MC_MOST) {
		if (at >= line || work->in[at & MC_MASK] != ' ')
			break;
		at++;
	}
	work->at = mc_word_end(at);
	length = work->at - at;
	return length ? length << 32 | at : 0;
}

static __always_inline int mc_is_space(__u8 byte)
{
	return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* What was read: a number, which had this sign. */
#define MC_NUMBER	1
#define MC_NEGATIVE	2

/*
 * Reads a number as strtoull() does, into `number`, without its sign: spaces, a sign, digits,
 * and then a space or the end. 0 if it is none, or too large. One with more than MC_SLACK digits
 * is none.
 */
__noinline int mc_number(__u64 at, __u64 length)
{
	__u64 number = 0, turn, digit, more, first, end = at + length;
	struct mc_work *work = mc_work();
	int found = MC_NUMBER;

	if (!work)
		return 0;
	sv_turns (turn, MC_SLACK) {
		if (at >= end || !mc_is_space(work->in[at & MC_MASK]))
			break;
		at++;
	}
	if (at < end && work->in[at & MC_MASK] == '-')
		found |= MC_NEGATIVE;
	at += at < end && (work->in[at & MC_MASK] == '-' || work->in[at & MC_MASK] == '+');
	first = at;
	sv_turns (turn, MC_SLACK) {
		digit = at < end ? work->in[at & MC_MASK] - '0' : 10;
		if (digit > 9)
			break;
		more = number * 10 + digit;
		if (number > ~0ull / 10 || more < digit)
			return 0;
		number = more;
		at++;
	}
	work->number = number;
	/* A value may contain a zero, which ends it for strtoull(). */
	if (at == first || (at < end && work->in[at & MC_MASK] && !mc_is_space(work->in[at & MC_MASK])))
		return 0;
	return found;
}

/* Writes a number in digits behind the request: where it begins, and its length above. */
__noinline __u64 mc_digits(__u64 number)
{
	struct mc_work *work = mc_work();
	__u64 turn, at = MC_DIGITS + 24;

	if (!work)
		return 0;
	sv_turns (turn, 20) {
		at--;
		work->in[at & MC_MASK] = '0' + number % 10;
		number /= 10;
		if (!number)
			break;
	}
	return (MC_DIGITS + 24 - at) << 32 | at;
}

#define MC_TEXT_WORDS	9

struct mc_said {
	__u64 length;
	union {
		char text[8 * MC_TEXT_WORDS];
		__u64 words[MC_TEXT_WORDS];
	};
};

#define MC_SAID(said)	{ .length = sizeof(said) - 1, .text = said }

const volatile struct mc_said mc_texts[32] = {
	[MC_ERROR] = MC_SAID("ERROR\r\n"),
	[MC_FORMAT] = MC_SAID("CLIENT_ERROR bad command line format\r\n"),
	[MC_USAGE] = MC_SAID("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"),
	[MC_BAD_TIME] = MC_SAID("CLIENT_ERROR invalid exptime argument\r\n"),
	[MC_BAD_DELTA] = MC_SAID("CLIENT_ERROR invalid numeric delta argument\r\n"),
	[MC_NO_NUMBER] = MC_SAID("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
	[MC_BAD_DATA] = MC_SAID("CLIENT_ERROR bad data chunk\r\n"),
	[MC_PACKETS] = MC_SAID("SERVER_ERROR multi-packet request not supported\r\n"),
	[MC_NO_ROOM] = MC_SAID("SERVER_ERROR out of memory writing get response\r\n"),
	[MC_NO_MEMORY] = MC_SAID("SERVER_ERROR out of memory storing object\r\n"),
	[MC_TOO_LARGE] = MC_SAID("SERVER_ERROR object too large for cache\r\n"),
	[MC_STORED] = MC_SAID("STORED\r\n"),
	[MC_NOT_STORED] = MC_SAID("NOT_STORED\r\n"),
	[MC_EXISTS] = MC_SAID("EXISTS\r\n"),
	[MC_NOT_FOUND] = MC_SAID("NOT_FOUND\r\n"),
	[MC_DELETED] = MC_SAID("DELETED\r\n"),
	[MC_TOUCHED] = MC_SAID("TOUCHED\r\n"),
	[MC_OK] = MC_SAID("OK\r\n"),
	[MC_END] = MC_SAID("END\r\n"),
	[MC_VERSION] = MC_SAID("VERSION xk\r\n"),
	[MC_STAT_ITEMS] = MC_SAID("STAT curr_items "),
	[MC_STAT_GETS] = MC_SAID("STAT cmd_get "),
	[MC_STAT_SETS] = MC_SAID("STAT cmd_set "),
	[MC_STAT_HITS] = MC_SAID("STAT get_hits "),
	[MC_STAT_MISSES] = MC_SAID("STAT get_misses "),
	[MC_STAT_EVICTED] = MC_SAID("STAT evictions "),
	/* To user space: */
	[MC_NOT_MINE] = MC_SAID("XKPASS\r\n"),
	[MC_NONE] = MC_SAID("XKNONE\r\n"),
	[MC_NOTHING] = MC_SAID("MN\r\n"),
};

/* Whether there is room for so many more bytes. */
static __always_inline int mc_fits_reply(struct mc_work *work, __u64 bytes)
{
	if (work->out + bytes <= MC_OUT_MOST)
		return 1;
	work->full = 1;
	return 0;
}

/* Adds a text to the reply, unless no answer is wanted. */
__noinline int mc_say(__u32 which)
{
	struct mc_work *work = mc_work();
	__u64 at, turn, length;

	which &= 31;
	if (!work || work->quiet)
		return 0;
	length = mc_texts[which].length;
	if (!mc_fits_reply(work, length))
		return 0;
	at = work->out;
	sv_turns (turn, MC_TEXT_WORDS) {
		if (8 * turn >= length)
			break;
		sv_store(&work->reply[(at + 8 * turn) & MC_OUT_MASK], mc_texts[which].words[turn]);
	}
	work->out = at + length;
	return 0;
}

/* Adds a few bytes. */
static __always_inline void mc_say_bytes(struct mc_work *work, __u64 bytes, __u64 length)
{
	sv_store(&work->reply[work->out & MC_OUT_MASK], bytes);
	work->out += length;
}

/* Adds a number; there is room. */
__noinline int mc_say_number(__u64 number)
{
	__u64 digits = mc_digits(number), at, from = (__u32)digits;
	struct mc_work *work = mc_work();

	if (!work)
		return 0;
	at = work->out;
	sv_store(&work->reply[at & MC_OUT_MASK], mc_eight(work, from));
	sv_store(&work->reply[(at + 8) & MC_OUT_MASK], mc_eight(work, from + 8));
	sv_store(&work->reply[(at + 16) & MC_OUT_MASK], mc_eight(work, from + 16));
	work->out = at + (digits >> 32);
	return 0;
}

#endif
