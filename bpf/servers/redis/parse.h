/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests: their words, and the numbers that words say. */
#ifndef _XK_REDIS_PARSE_H
#define _XK_REDIS_PARSE_H

#include "work.h"

/* What there is where a request begins. Positions in the request are smaller. */
#define RD_WHOLE	(1ull << 32)
#define RD_MORE		(2ull << 32)
#define RD_OTHER	(3ull << 32)	/* not answered here, whatever it is */

/*
 * Reads a number up to the end of its line: the number, and above it how many bytes it takes with
 * the end. RD_MORE if the line has not arrived as a whole, RD_OTHER if it is no number.
 */
__noinline __u64 rd_line_number(__u64 at)
{
	__u64 number = 0, turn, begin = at, digit;
	struct rd_work *work = rd_work();
	int negative = 0;

	if (!work)
		return RD_OTHER;
	if (at < work->end && rd_byte(work, at) == '-') {
		negative = 1;
		at++;
	}
	sv_turns (turn, 10) {
		if (at + 1 >= work->end)
			return RD_MORE;
		digit = rd_byte(work, at) - '0';
		if (digit > 9)
			break;
		number = number * 10 + digit;
		at++;
	}
	if (rd_byte(work, at) != '\r' || at == begin + negative || number > 0x7fffffff)
		return RD_OTHER;
	/* No zero before other digits, and none with a sign. */
	if (rd_byte(work, begin + negative) == '0' && (negative || at - begin > 1))
		return RD_OTHER;
	/* Redis does not look at the byte behind it. */
	work->number = negative ? -number : number;
	return at + 2;
}

/*
 * The same for a line of `mark` and one or two digits, as nearly all are; 0 for others. Quick, because
 * it is one access.
 */
static __always_inline __u64 rd_short_number(struct rd_work *work, __u64 at, __u8 mark)
{
	__u64 eight = rd_eight(work, at), digit, other, next = at + 4;

	digit = (__u8)(eight >> 8) - '0';
	if ((__u8)eight != mark || digit > 9)
		return 0;
	if ((eight >> 16 & 0xffff) != ('\r' | '\n' << 8)) {
		other = (__u8)(eight >> 16) - '0';
		if (!digit || other > 9 || (eight >> 24 & 0xffff) != ('\r' | '\n' << 8))
			return 0;
		digit = 10 * digit + other;
		next++;
	}
	if (next > work->end)
		return 0;
	work->number = digit;
	return next;
}

/* The line before a word, in the same way. */
__noinline __u64 rd_length_line(__u64 at)
{
	struct rd_work *work = rd_work();
	__u64 next;

	if (!work)
		return RD_OTHER;
	if (at >= work->end)
		return RD_MORE;
	if (rd_byte(work, at) != '$')
		return RD_OTHER;
	next = rd_line_number(at + 1);
	return next < RD_WHOLE && (__s64)work->number < 0 ? RD_OTHER : next;
}

/* The longest inline request. */
#define RD_INLINE	1024

/* What a byte is in an inline request. */
#define RD_OF_WORD	1
#define RD_SPACE	2
#define RD_LINE_END	4
#define RD_QUOTE	8

/* Which of these, as the number of its bit. */
const volatile __u8 rd_classes[256] = {
	[0] = 1, ['\t'] = 1, ['\v'] = 1, ['\f'] = 1, ['\r'] = 1, [' '] = 1,
	['\n'] = 2,
	['"'] = 3, ['\''] = 3,
};

/* The first byte from here on that is one of these. */
__noinline __u64 rd_scan(__u64 at, __u32 classes)
{
	struct rd_work *work = rd_work();
	__u64 turn, end;

	if (!work)
		return RD_OTHER;
	end = work->end;
	sv_turns (turn, RD_INLINE) {
		if (at >= end)
			return RD_MORE;
		if (1 << rd_classes[rd_byte(work, at)] & classes)
			return at;
		at++;
	}
	return RD_OTHER;
}

/* Reads the words of an inline request. Redis splits it at white space. */
__noinline __u64 rd_parse_inline(__u64 begin)
{
	__u64 turn, end, at, last;
	struct rd_work *work = rd_work();

	if (!work)
		return RD_OTHER;
	last = rd_scan(begin, RD_LINE_END);
	if (last == RD_MORE)
		return RD_MORE;
	at = rd_scan(begin, RD_LINE_END | RD_QUOTE);
	if (at != last || last == RD_OTHER)
		return RD_OTHER;
	at = begin;
	work->args = 0;
	sv_turns (turn, RD_ARGS) {
		at = rd_scan(at, RD_OF_WORD | RD_LINE_END);
		if (at >= last)
			break;
		end = rd_scan(at, RD_SPACE | RD_LINE_END);
		work->arg[turn & (RD_ARGS - 1)] = (end - at) << 32 | at;
		work->args++;
		at = end;
	}
	if (at < last)
		return RD_OTHER;
	work->next = last + 1;
	return RD_WHOLE;
}

/* Reads the words of the request that begins here. What is none, redis-server refuses. */
__noinline __u64 rd_parse(__u64 at)
{
	struct rd_work *work = rd_work();
	__u64 turn, next, args, length;

	if (!work)
		return RD_OTHER;
	if (at >= work->end)
		return RD_MORE;
	next = rd_short_number(work, at, '*');
	if (!next) {
		if (rd_byte(work, at) != '*')
			return rd_parse_inline(at);
		next = rd_line_number(at + 1);
		if (next >= RD_WHOLE)
			return next;
		/* None, which Redis ignores. */
		if ((__s64)work->number <= 0)
			work->number = 0;
	}
	args = work->number;
	if (args > RD_ARGS)
		return RD_OTHER;
	at = next;
	work->args = args;
	sv_turns (turn, RD_ARGS) {
		if (turn >= args)
			break;
		next = rd_short_number(work, at, '$');
		if (!next)
			next = rd_length_line(at);
		if (next >= RD_WHOLE)
			return next;
		length = work->number;
		work->arg[turn & (RD_ARGS - 1)] = length << 32 | next;
		at = next + length + 2;
		if (at > work->end)
			return RD_MORE;
	}
	work->next = at;
	return RD_WHOLE;
}

/* What was read: a number, which fits 64 bits with its sign. */
#define RD_NUMBER	1

/* Reads a word as Redis reads integers: no spaces, no leading zeros, no plus. Into `number`. */
__noinline int rd_integer(__u64 at, __u64 length)
{
	__u64 number = 0, turn, end = at + length, digit, most = ~0ull >> 1;
	struct rd_work *work = rd_work();
	int negative = 0;

	if (!work || !length || length > 20)
		return 0;
	if (rd_byte(work, at) == '-') {
		negative = 1;
		at++;
		most++;
	}
	if (at >= end || (rd_byte(work, at) == '0' && end - at > 1) ||
	    (negative && rd_byte(work, at) == '0'))
		return 0;
	sv_turns (turn, 20) {
		if (at >= end)
			break;
		digit = rd_byte(work, at) - '0';
		if (digit > 9 || number > (most - digit) / 10)
			return 0;
		number = number * 10 + digit;
		at++;
	}
	work->number = negative ? -number : number;
	return RD_NUMBER;
}

/* Scores without a bound. */
#define RD_INFINITE	(1ll << 62)
#define RD_LARGEST	(1ll << 53)

/* Eight letters of a word in lower case. */
static __always_inline __u64 rd_lower(__u64 at, __u64 length)
{
	struct rd_work *work = rd_work();

	return work ? sv_first(rd_eight(work, at), length) | 0x2020202020202020ull : 0;
}

#define RD_LOWER(text)	(SV_WORD(text) | 0x2020202020202020ull)

/* What a word says as a score. */
enum rd_scores { RD_NO_SCORE, RD_SCORE, RD_OTHER_SCORE };

/*
 * Reads a score into `number`. Scores here are whole numbers that a double holds exactly, and the
 * two infinite ones. RD_OTHER_SCORE: Redis may know it. RD_NO_SCORE: it certainly does not.
 */
__noinline int rd_score(__u64 at, __u64 length)
{
	__u64 number = 0, turn, end = at + length, digit, digits = 0;
	struct rd_work *work = rd_work();
	int negative, other = 0;
	__u64 word;
	__u8 byte;

	if (!work || !length)
		return RD_NO_SCORE;
	negative = rd_byte(work, at) == '-';
	at += negative || rd_byte(work, at) == '+';
	word = rd_lower(at, end - at);
	if ((end - at == 3 && word == RD_LOWER("inf")) ||
	    (end - at == 8 && word == RD_LOWER("infinity"))) {
		work->number = negative ? -RD_INFINITE : RD_INFINITE;
		return RD_SCORE;
	}
	if (at >= end)
		return RD_NO_SCORE;
	sv_turns (turn, 40) {
		if (at >= end)
			break;
		byte = rd_byte(work, at);
		digit = byte - '0';
		at++;
		if (digit <= 9) {
			digits = 1;
			if (number <= (__u64)RD_LARGEST)
				number = number * 10 + digit;
			continue;
		}
		byte |= 0x20;
		/* A fraction, an exponent, or a number to the base of 16. */
		if (byte != ('.' | 0x20) && byte != ('-' | 0x20) && byte != ('+' | 0x20) &&
		    byte != 'p' && byte != 'x' && !(byte >= 'a' && byte <= 'f'))
			return RD_NO_SCORE;
		other = 1;
	}
	if (!digits)
		return RD_NO_SCORE;
	/* Redis also has a zero with a sign. */
	if (other || at < end || number > (__u64)RD_LARGEST || (negative && !number))
		return RD_OTHER_SCORE;
	work->number = negative ? -number : number;
	return RD_SCORE;
}

/* Adds the digits of a score. */
__noinline int rd_say_score(__u64 score)
{
	struct rd_work *work = rd_work();
	__u64 before, length;

	if (!work)
		return 0;
	if ((__s64)score == RD_INFINITE) {
		rd_say_bytes(work, SV_WORD("$3\r\ninf"), 7);
		rd_say_end(work);
		return 0;
	}
	if ((__s64)score == -RD_INFINITE) {
		rd_say_bytes(work, SV_WORD("$4\r\n-inf"), 8);
		rd_say_end(work);
		return 0;
	}
	/* Its length is not known before: one digit, or two. */
	before = work->out;
	rd_say_bytes(work, SV_WORD("$0\r\n"), 4);
	rd_say_signed(score);
	length = work->out - before - 4;
	if (length < 10) {
		work->reply[(before + 1) & RD_OUT_MASK] = '0' + length;
	} else {
		work->out = before;
		rd_say_bytes(work, SV_WORD("$00\r\n"), 5);
		work->reply[(before + 1) & RD_OUT_MASK] = '0' + length / 10;
		work->reply[(before + 2) & RD_OUT_MASK] = '0' + length % 10;
		rd_say_signed(score);
	}
	rd_say_end(work);
	return 0;
}

/* Makes this word what is sought. Whether it is not too long. */
__noinline int rd_key(__u64 from, __u64 length)
{
	struct rd_work *work = rd_work();
	__u64 hash, at, eight;

	if (!work || length > RD_KEY)
		return 0;
	hash = length;
	sv_turns (at, RD_KEY_WORDS) {
		if (8 * at >= length)
			break;
		eight = sv_first(rd_eight(work, from + 8 * at), length - 8 * at);
		work->key[at] = eight;
		hash = sv_mix(hash ^ eight);
	}
	work->hash = hash;
	work->key_length = length;
	return 1;
}

#endif
