/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What servers of text protocols share: loops with constant bounds, and eight bytes at a time.
 *
 * Functions that are not static are verified once, and not once for each call. They take and return
 * numbers only, and find what they work on by themselves. Their loops have constant bounds. So a
 * run is never ended in them.
 */
#ifndef _XK_SERVERS_TEXT_H
#define _XK_SERVERS_TEXT_H

/*
 * A loop of so many turns at most, in a form that keeps its counter in a register of its own: so
 * `xk flex` and the verifier see that it ends.
 */
#define sv_step(turn)		({ (turn)++; barrier_var(turn); })
#define sv_turns(turn, most)	for (turn = 0; turn < (most); sv_step(turn))

/*
 * Eight bytes at any address, in one access. Of a pointer to a byte, as an argument, the
 * compiler no longer knows that it is one, and does not access each byte by itself.
 */
static __always_inline __u64 sv_load(const void *from)
{
	return *(const __u64 *)from;
}

static __always_inline void sv_store(void *to, __u64 bytes)
{
	*(__u64 *)to = bytes;
}

/* The first `length` bytes of eight. */
static __always_inline __u64 sv_first(__u64 eight, __u64 length)
{
	return length < 8 ? eight & ((1ull << 8 * length) - 1) : eight;
}

static __always_inline __u64 sv_words(__u64 bytes)
{
	return (bytes + 7) / 8;
}

/* Up to eight letters, as a number. */
#define SV_LETTER(text, n)	\
	((n) < sizeof(text) - 1 ? (__u64)(__u8)(text)[(n) < sizeof(text) - 1 ? (n) : 0] << 8 * ((n) & 7) : 0)
#define SV_WORD(text)							\
	(SV_LETTER(text, 0) | SV_LETTER(text, 1) | SV_LETTER(text, 2) | SV_LETTER(text, 3) |	\
	 SV_LETTER(text, 4) | SV_LETTER(text, 5) | SV_LETTER(text, 6) | SV_LETTER(text, 7))
/* Those from the ninth on. */
#define SV_REST(text)							\
	(SV_LETTER(text, 8) | SV_LETTER(text, 9) | SV_LETTER(text, 10) | SV_LETTER(text, 11) |	\
	 SV_LETTER(text, 12) | SV_LETTER(text, 13) | SV_LETTER(text, 14) | SV_LETTER(text, 15))

/* Spreads the bits of a word (the finalizer of MurmurHash3). */
static __always_inline __u64 sv_mix(__u64 hash)
{
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdull;
	hash ^= hash >> 33;
	hash *= 0xc4ceb9fe1a85ec53ull;
	return hash ^ hash >> 33;
}

#endif
