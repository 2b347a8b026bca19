/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Strings of bytes in the heap, with their length. A run that is ended in one of these functions
 * has changed nothing.
 */
#ifndef _XK_FLEX_STRING_H
#define _XK_FLEX_STRING_H

#include "base.h"

struct xk_string {
	__u64 length;
	__u8 bytes[];
};

/* The longest one. */
#define XK_STRING_MOST	(1ull << 20)

/* A string with any content; NULL without memory, and if it is too long. */
xk_fn struct xk_string __heap *xk_string_new(__u64 length)
{
	struct xk_string __heap *string;

	if (length > XK_STRING_MOST)
		return xk_null;
	string = xk_malloc(sizeof(*string) + length);
	if (string)
		string->length = length;
	return string;
}

/*
 * A string of bytes of the program, on its stack or in a map. The program's buffer has room for
 * `most` bytes, a constant up to 1024, because the verifier follows each turn. NULL without memory,
 * and if the string is longer.
 */
xk_inline struct xk_string __heap *xk_string_from(const __u8 *bytes, __u64 length, const __u32 most)
{
	struct xk_string __heap *string;

	if (length > most)
		return xk_null;
	string = xk_string_new(length);
	if (!string)
		return string;
	for (__u32 at = 0; at < most; at++) {
		/* If the compiler knew it, it would leave out the constant bound. */
		xk_opaque(length);
		if (at >= length)
			break;
		/* Volatile: clang makes a call of memcpy() of a plain loop. */
		((volatile __u8 __heap *)string->bytes)[at] = bytes[at];
	}
	return string;
}

/* The first bytes of a string, as many as fit into the program's buffer. Their number. */
xk_inline __u64 xk_string_to(struct xk_string __heap *string, __u8 *bytes, const __u32 most)
{
	__u64 length = string->length;

	for (__u32 at = 0; at < most; at++) {
		xk_opaque(length);
		if (at >= length)
			break;
		bytes[at] = ((volatile __u8 __heap *)string->bytes)[at];
	}
	return length < most ? length : most;
}

/* Less than 0, 0 or more, as memcmp(); of two with the same beginning, the shorter is less. */
xk_fn int xk_string_compare(struct xk_string __heap *first, struct xk_string __heap *second)
{
	__u64 common = first->length < second->length ? first->length : second->length;

	for (__u64 at = 0; at < common; at++) {
		if (first->bytes[at] != second->bytes[at])
			return first->bytes[at] < second->bytes[at] ? -1 : 1;
	}
	if (first->length == second->length)
		return 0;
	return first->length < second->length ? -1 : 1;
}

/* FNV-1a. */
xk_fn __u64 xk_string_hash(struct xk_string __heap *string)
{
	__u64 hash = 0xcbf29ce484222325ull;
	__u64 length = string->length;

	for (__u64 at = 0; at < length; at++)
		hash = (hash ^ string->bytes[at]) * 0x100000001b3ull;
	return hash;
}

#endif
