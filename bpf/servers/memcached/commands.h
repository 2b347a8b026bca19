/* SPDX-License-Identifier: GPL-2.0-only */
/* The commands of memcached's text protocol: what they are, and reading one with its words. */
#ifndef _XK_MEMCACHED_COMMANDS_H
#define _XK_MEMCACHED_COMMANDS_H

#include "stats.h"

/* A command is a number: how many words it has, what it does, and which numbers follow the key. */
#define MC_LEAST(spec)	((spec) & 15)
#define MC_MOST_OF(spec)	((spec) >> 4 & 15)
#define MC_COUNT_OF(least, most)	((least) | (most) << 4)

#define MC_GETS		(1ull << 8)	/* reads items, of several keys */
#define MC_WITH_CAS	(1ull << 9)	/* and their numbers */
#define MC_STORES	(1ull << 10)	/* a value follows */
#define MC_CREATES	(1ull << 11)	/* also without an item */
#define MC_ONLY_NEW	(1ull << 12)	/* only without an item */
#define MC_COMPARES	(1ull << 13)	/* only if the item has this number */
#define MC_APPENDS	(1ull << 14)
#define MC_PREPENDS	(1ull << 15)
#define MC_TOUCHES	(1ull << 16)	/* gives an item a new time */
#define MC_DELETES	(1ull << 17)
#define MC_COUNTS	(1ull << 18)
#define MC_ADDS		(1ull << 19)
#define MC_FLUSHES	(1ull << 20)
#define MC_TELLS	(1ull << 21)	/* its version */
#define MC_SHOWS	(1ull << 22)	/* what it has done */
#define MC_ENDS		(1ull << 23)	/* says that all before it is answered */
#define MC_CLAIMS	(1ull << 24)	/* makes a key memcached's */
/* These concern memcached, too: user space does them there and here. */
#define MC_SHARED	(MC_TELLS | MC_FLUSHES | MC_SHOWS | MC_CLAIMS)

/* The item keeps its flags and its time. */
#define MC_KEEPS	(MC_APPENDS | MC_PREPENDS | MC_COUNTS)

#define MC_NUMBERS	32		/* four bits of each */
#define MC_U32		1ull
#define MC_I32		2ull
#define MC_U64		3ull
#define MC_KINDS(a, b, c, d)	\
	((a) << MC_NUMBERS | (b) << (MC_NUMBERS + 4) | (c) << (MC_NUMBERS + 8) | (d) << (MC_NUMBERS + 12))

#define MC_STORE	(MC_COUNT_OF(5, 6) | MC_STORES | MC_KINDS(MC_U32, MC_I32, MC_I32, 0ull))
#define MC_TIME		MC_KINDS(MC_I32, 0ull, 0ull, 0ull)
#define MC_DELTA	MC_KINDS(MC_U64, 0ull, 0ull, 0ull)

/* Times above are seconds since 1970, others from now on. */
#define MC_RELATIVE	(60 * 60 * 24 * 30)
/* In the past, whatever the time is. */
#define MC_GONE		1

/* What the program does next. */
enum mc_steps { MC_STOP, MC_ITEM, MC_AGAIN, MC_MORE };

#include "foreign.h"

/* The command of a name, up to eight letters of it; 0: none. */
static __always_inline __u64 mc_spec(__u64 name)
{
	switch (name) {
	case SV_WORD("get"):
		return MC_GETS;
	case SV_WORD("gets"):
		return MC_GETS | MC_WITH_CAS;
	case SV_WORD("gat"):
		return MC_GETS | MC_TOUCHES | MC_TIME;
	case SV_WORD("gats"):
		return MC_GETS | MC_WITH_CAS | MC_TOUCHES | MC_TIME;
	case SV_WORD("set"):
		return MC_STORE | MC_CREATES;
	case SV_WORD("add"):
		return MC_STORE | MC_CREATES | MC_ONLY_NEW;
	case SV_WORD("replace"):
		return MC_STORE;
	case SV_WORD("append"):
		return MC_STORE | MC_APPENDS;
	case SV_WORD("prepend"):
		return MC_STORE | MC_PREPENDS;
	case SV_WORD("cas"):
		return MC_COUNT_OF(6, 7) | MC_STORES | MC_COMPARES |
		       MC_KINDS(MC_U32, MC_I32, MC_I32, MC_U64);
	case SV_WORD("touch"):
		return MC_COUNT_OF(3, 4) | MC_TOUCHES | MC_TIME;
	case SV_WORD("delete"):
		return MC_COUNT_OF(2, 4) | MC_DELETES;
	case SV_WORD("incr"):
		return MC_COUNT_OF(3, 4) | MC_COUNTS | MC_ADDS | MC_DELTA;
	case SV_WORD("decr"):
		return MC_COUNT_OF(3, 4) | MC_COUNTS | MC_DELTA;
	case SV_WORD("flush_al"):
		return MC_COUNT_OF(1, 3) | MC_FLUSHES;
	case SV_WORD("version"):
		return MC_COUNT_OF(1, 15) | MC_TELLS;
	case SV_WORD("stats"):
		return MC_COUNT_OF(1, 1) | MC_SHOWS;
	}
	return mc_stream_spec(name);
}

/* Makes this word the key. */
__noinline int mc_key(__u64 from, __u64 length)
{
	__u64 hash = length, at, eight;
	struct mc_work *work = mc_work();

	if (!work)
		return MC_STOP;
	sv_turns (at, MC_KEY_WORDS) {
		if (8 * at >= length)
			break;
		eight = sv_first(mc_eight(work, from + 8 * at), length - 8 * at);
		work->key[at] = eight;
		hash = sv_mix(hash ^ eight);
	}
	work->hash = hash;
	work->key_length = length;
	return MC_ITEM;
}

/* Reads the numbers of the command, which begin at this word; whether they are some. */
__noinline int mc_read_numbers(__u64 spec, __u64 first)
{
	struct mc_work *work = mc_work();
	__u64 number, kind, word, turn;
	int found, negative;

	if (!work)
		return 0;
	sv_turns (turn, 4) {
		kind = spec >> (MC_NUMBERS + 4 * turn) & 15;
		if (!kind)
			break;
		word = work->words[(first + turn) & (MC_WORDS - 1)];
		found = mc_number((__u32)word, word >> 32);
		number = work->number;
		if (!found)
			return 0;
		negative = !!(found & MC_NEGATIVE);
		if (negative)
			number = -number;
		if (kind == MC_I32) {
			/* Read as long, of which memcached keeps the lower half. */
			if (number && ((__s64)number < 0) != negative)
				return 0;
			number = (__s32)number;
		} else if (negative && (__s64)number < 0) {
			return 0;
		}
		work->numbers[turn] = kind == MC_U32 ? (__u32)number : number;
	}
	return 1;
}

/* When an item is gone: seconds since 1970, or 0. */
static __always_inline __u64 mc_exptime(struct mc_work *work, __s64 time)
{
	if (time < 0)
		return MC_GONE;
	return time && time <= MC_RELATIVE ? work->now + time : time;
}

/* Ends a command: says something, and goes on behind its line. */
static __always_inline int mc_done(struct mc_work *work, __u32 text)
{
	mc_say(text);
	work->at = work->next;
	work->spec = 0;
	return MC_AGAIN;
}

/* The next key of a command of several. */
__noinline int mc_next_key(void)
{
	__u64 word = mc_read_word();
	struct mc_work *work = mc_work();

	if (!work)
		return MC_STOP;
	if (!word)
		return mc_done(work, work->keys ? MC_END : MC_ERROR);
	if (word >> 32 > MC_KEY) {
		work->out = work->began;
		return mc_done(work, MC_FORMAT);
	}
	work->keys++;
	mc_note_key(work, (__u32)word);
	return mc_key((__u32)word, word >> 32);
}

/* Begins a command of several keys. */
static __always_inline int mc_begin_keys(struct mc_work *work, __u64 spec)
{
	work->keys = 0;
	work->spec = spec;
	mc_note_key(work, 0);
	if (!(spec & MC_TOUCHES))
		return MC_AGAIN;
	work->words[0] = mc_read_word();
	if (!work->words[0])
		return mc_done(work, MC_ERROR);
	if (!mc_read_numbers(spec, 0))
		return mc_done(work, MC_BAD_TIME);
	work->exptime = mc_exptime(work, work->numbers[0]);
	/* Without a key it is no error. */
	work->keys = 1;
	return MC_AGAIN;
}

static __always_inline int mc_is(struct mc_work *work, __u64 word, __u64 text, __u64 length)
{
	return word >> 32 == length && sv_first(mc_eight(work, (__u32)word), length) == text;
}

/* Reads the other words of the line: how many there are, with the first one. */
__noinline __u64 mc_read_words(void)
{
	struct mc_work *work = mc_work();
	__u64 count, word;

	if (!work)
		return 0;
	for (count = 1; count < 24; sv_step(count)) {
		word = mc_read_word();
		if (!word)
			break;
		if (count < MC_WORDS)
			work->words[count] = word;
	}
	return count;
}

/* flush_all: everything that was stored until now, or until then, is gone. */
static __always_inline int mc_flush(struct mc_work *work, __u64 count)
{
	__u64 when = work->now;

	if (count != 1 + work->quiet) {
		if (!mc_read_numbers(MC_TIME, 1))
			return mc_done(work, MC_BAD_TIME);
		if ((__s64)work->numbers[0] > 0)
			when = mc_exptime(work, work->numbers[0]);
	}
	if (mc_store) {
		mc_store->flush_time = when - 1;
		if (when - 1 <= work->now)
			mc_store->flush_cas = mc_next_cas();
	}
	return mc_done(work, MC_OK);
}

/* Finds the value behind the line; whether it is there. */
static __always_inline int mc_has_value(struct mc_work *work)
{
	__u64 length = work->numbers[2], after = work->next + length + 2;

	work->value = work->next;
	work->length = length;
	if (length > MC_MOST || after > work->end) {
		work->next = work->end;
		return 0;
	}
	work->next = after;
	return (__u16)mc_eight(work, after - 2) == ('\r' | '\n' << 8);
}

/* A command of one key, or none, of so many words; those behind the first are there. */
__noinline int mc_one_key(__u64 spec, __u64 count)
{
	struct mc_work *work = mc_work();
	__u64 last, key;
	int step;

	if (work && mc_is_shared(work, spec))
		return MC_AGAIN;
	if (!work || count < MC_LEAST(spec) || count > MC_MOST_OF(spec))
		return MC_STOP;
	if (spec & MC_TELLS)
		return mc_done(work, MC_VERSION);
	if (spec & MC_ENDS)
		return mc_done(work, MC_NOTHING);
	if (spec & MC_SHOWS) {
		mc_stats();
		return mc_done(work, MC_END);
	}
	key = work->words[1];
	last = work->words[(count - 1) & (MC_WORDS - 1)];
	/* Of two words, it is the key. */
	work->quiet = (count > 2 || spec & MC_FLUSHES) && mc_is(work, last, SV_WORD("noreply"), 7);
	if (spec & MC_FLUSHES)
		return mc_flush(work, count);
	if (spec & MC_DELETES && count > 2) {
		int is_zero = mc_is(work, work->words[2], '0', 1);

		if (count == 3 ? !is_zero && !work->quiet : !is_zero || !work->quiet)
			return mc_done(work, MC_USAGE);
	}
	if (key >> 32 > MC_KEY)
		return mc_done(work, MC_FORMAT);
	if (!mc_read_numbers(spec, 2))
		return mc_done(work, spec & MC_STORES ? MC_FORMAT :
				     spec & MC_COUNTS ? MC_BAD_DELTA : MC_BAD_TIME);
	if (spec & MC_STORES) {
		work->exptime = mc_exptime(work, work->numbers[1]);
		if (work->numbers[2] > 0x7fffffff - 2)
			return mc_done(work, MC_FORMAT);
		step = mc_value_waits(work);
		if (step)
			return step;
		if (!mc_has_value(work))
			return mc_done(work, MC_BAD_DATA);
	} else if (spec & MC_TOUCHES) {
		work->exptime = mc_exptime(work, work->numbers[0]);
	}
	work->spec = spec;
	work->at = work->next;
	return mc_key((__u32)key, key >> 32);
}

/* Goes on to the next key, or the next command of the datagram. */
__noinline int mc_next(void)
{
	struct mc_work *work = mc_work();
	__u64 end, at, word, spec, length;
	int step;

	if (!work)
		return MC_STOP;
	if (work->spec & MC_GETS)
		return mc_next_key();
	at = work->at;
	end = at < work->end ? mc_line_end(at) : work->end;
	/* What has no end is no command. */
	if (end >= work->end)
		return MC_STOP;
	work->next = end + 1;
	if (end - at > 1 && work->in[(end - 1) & MC_MASK] == '\r')
		end--;
	work->line = end;
	work->quiet = 0;
	work->began = work->out;
	word = mc_read_word();
	at = (__u32)word;
	length = word >> 32;
	spec = mc_spec(sv_first(mc_eight(work, at), length));
	if (!spec || (length > 8 && !(spec & MC_FLUSHES)) ||
	    (spec & MC_FLUSHES && (length != 9 || work->in[(at + 8) & MC_MASK] != 'l')))
		return mc_is_foreign(work) ? MC_AGAIN : mc_done(work, MC_ERROR);
	if (spec & MC_GETS)
		return mc_begin_keys(work, spec);
	step = mc_one_key(spec, mc_read_words());
	return step == MC_STOP ? mc_done(work, MC_ERROR) : step;
}

#endif
