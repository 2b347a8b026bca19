/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Sketches, which take little memory for many keys: how often each key was added, at least (a
 * count-min sketch), and how many different keys were added, about (HyperLogLog). Who adds is alone
 * with a sketch. A run that is ended in one of these functions has changed nothing. In
 * xk_countmin_new() and xk_hll_new(), it loses the memory of the sketch.
 */
#ifndef _XK_FLEX_SKETCH_H
#define _XK_FLEX_SKETCH_H

#include "base.h"

/* The last step of MurmurHash3: each bit of the result depends on each bit of the key. */
xk_inline __u64 xk_sketch_mix(__u64 key)
{
	key ^= key >> 33;
	key *= 0xff51afd7ed558ccdull;
	key ^= key >> 33;
	key *= 0xc4ceb9fe1a85ec53ull;
	return key ^ key >> 33;
}

#define XK_COUNTMIN_ROWS	16

struct xk_countmin {
	__u64 rows;
	__u64 bits;		/* 2^bits counters in each row */
	__u64 total;
	__u64 counters[];
};

/*
 * A sketch whose estimates exceed the true number by more than total / 2^precision with a
 * probability of at most 2^-certainty; up to 20 and 32. NULL without memory.
 *
 * A row is four times as wide as the precision asks for, so a counter exceeds that with a
 * probability of at most a quarter, and all rows do with a quarter for each.
 */
xk_fn struct xk_countmin __heap *xk_countmin_new(__u32 precision, __u32 certainty)
{
	struct xk_countmin __heap *sketch;
	__u64 log = (certainty > 2) + (certainty > 4) + (certainty > 8) + (certainty > 16);
	__u64 bits = precision + 2;

	if (precision > 20 || certainty > 2 * XK_COUNTMIN_ROWS)
		return xk_null;
	sketch = xk_calloc(1, sizeof(*sketch) + ((__u64)sizeof(sketch->counters[0]) << bits << log));
	if (sketch) {
		sketch->rows = 1ull << log;
		sketch->bits = bits;
	}
	return sketch;
}

/* A key's counter in a row. */
xk_inline __u64 __heap *xk_countmin_counter(struct xk_countmin __heap *sketch, __u64 row, __u64 key)
{
	__u64 hash = xk_sketch_mix(key + (row + 1) * 0x9e3779b97f4a7c15ull);

	return &sketch->counters[(row << sketch->bits) + (hash >> (64 - sketch->bits))];
}

/* How often a key was added; never too low. */
xk_fn __u64 xk_countmin_estimate(struct xk_countmin __heap *sketch, __u64 key)
{
	__u64 least = ~0ull;

	for (__u64 row = 0; row < sketch->rows; row++) {
		__u64 count = *xk_countmin_counter(sketch, row, key);

		if (count < least)
			least = count;
	}
	return least;
}

/* Adds a key so many times. Counters that are higher than they must be stay. */
xk_fn void xk_countmin_add(struct xk_countmin __heap *sketch, __u64 key, __u64 times)
{
	__u64 count = xk_countmin_estimate(sketch, key) + times;

	for (__u32 row = 0; row < XK_COUNTMIN_ROWS; row++) {
		__u64 __heap *counter;

		if (row >= sketch->rows)
			break;
		counter = xk_countmin_counter(sketch, row, key);
		if (*counter < count)
			*counter = count;
	}
	sketch->total += times;
}

struct xk_hll {
	__u64 bits;
	__u8 registers[];	/* 2^bits of them */
};

/* A sketch with 2^bits registers of a byte, from 4 to 16 bits; NULL without memory. */
xk_fn struct xk_hll __heap *xk_hll_new(__u32 bits)
{
	struct xk_hll __heap *sketch;

	if (bits < 4 || bits > 16)
		return xk_null;
	sketch = xk_calloc(1, sizeof(*sketch) + (1ull << bits));
	if (sketch)
		sketch->bits = bits;
	return sketch;
}

xk_fn void xk_hll_add(struct xk_hll __heap *sketch, __u64 key)
{
	__u64 hash = xk_sketch_mix(key + 0x9e3779b97f4a7c15ull);
	__u8 __heap *place = &sketch->registers[hash >> (64 - sketch->bits)];
	__u8 zeros;

	/* Leading zeros of the other bits, and one. */
	zeros = 1 + __builtin_clzll(hash << sketch->bits | 1ull << (sketch->bits - 1));
	if (*place < zeros)
		*place = zeros;
}

/* The binary logarithm of a number from 1 to 2^31, in units of 2^-16. */
xk_fn __u64 xk_hll_log(__u64 number)
{
	__u64 whole = 63 - __builtin_clzll(number);
	__u64 square = number << (31 - whole);
	__u64 log = whole;

	for (__u32 bit = 0; bit < 16; bit++) {
		square = square * square >> 31;
		log = log << 1 | square >> 32;
		square >>= square >> 32;
	}
	return log;
}

/*
 * How many different keys were added, about: the standard error is 1.04 / sqrt(2^bits), or less.
 * In integers, because extensions and kernels have no others.
 */
xk_fn __u64 xk_hll_estimate(struct xk_hll __heap *sketch)
{
	__u64 registers = 1ull << sketch->bits, sum = xk_any(0ull), empty = xk_any(0ull);
	__u64 estimate, log;

	/* Sum of 2^-register, in units of 2^-32. */
	for (__u64 at = 0; at < registers; at++) {
		__u8 zeros = sketch->registers[at];

		sum += (1ull << 32) >> zeros;
		empty += !zeros;
	}
	if (!sum)
		return ~0ull;
	/* 0.7213 / (1 + 1.079 / registers), by the square of the registers, by the sum. */
	estimate = registers * ((registers << 47) / sum) >> 15;
	estimate = estimate * (47271 * 1000 * registers / (1000 * registers + 1079)) >> 16;
	if (!empty || estimate > registers * 5 / 2)
		return estimate;
	/* Few keys: by the number of empty registers. The natural logarithm of 2 is 45426 / 2^16. */
	log = xk_hll_log(registers) - xk_hll_log(empty);
	return registers * (log * 45426 >> 16) >> 16;
}

#endif
