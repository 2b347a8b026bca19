/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel's decoder said about instructions: shape.c. */
#ifndef _XK_SHAPE_H
#define _XK_SHAPE_H

#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

#include "text/relocate.h"

#define XK_SHAPES_BITS 13

/*
 * By header. A shape is a header of at most six bytes, the first one the lowest; its length; and
 * what is known of all instructions that begin with it. 0: none yet.
 */
struct xk_shapes {
	__u64 at[1 << XK_SHAPES_BITS];
};

#define XK_MAX_HEADER 6
#define XK_SHAPE_HEADER_LEN 48		/* shifts of fields of four bits */
#define XK_SHAPE_LEN 52
#define XK_SHAPE_DISTANCE_LEN 56	/* of the distance of its target; 0: no branch */

/* Bytes that may be read at an instruction, even if the text ends before. */
#define XK_SHAPE_READ sizeof(__u64)

static inline __u64 xk_shape_key(__u64 first, unsigned int header_len)
{
	return (first & ((1ull << 8 * header_len) - 1)) |
	       (__u64)header_len << XK_SHAPE_HEADER_LEN;
}

static inline __u64 *xk_shape_at(struct xk_shapes *shapes, __u64 key)
{
	return &shapes->at[key * 0x9e3779b97f4a7c15ull >> (64 - XK_SHAPES_BITS)];
}

static inline unsigned int xk_shape_field(__u64 shape, unsigned int shift)
{
	return shape >> shift & 15;
}

/* Returns the shape of the instruction that begins with these bytes; 0 if none is known. */
static inline __u64 xk_shape_find(struct xk_shapes *shapes, __u64 first)
{
	unsigned int header_len;

	/* No header is the beginning of another one. */
	for (header_len = 1; header_len <= XK_MAX_HEADER; header_len++) {
		__u64 key = xk_shape_key(first, header_len), shape = *xk_shape_at(shapes, key);

		if (!((shape ^ key) << (64 - XK_SHAPE_LEN)))
			return shape;
	}
	return 0;
}

/* Asks the decoder, and remembers the answer. Out: as of xk_branch(). */
unsigned int xk_shape_ask(struct xk_shapes *shapes, const __u8 *bytes, unsigned int room,
			  unsigned long address, xk_decode_fn decode, unsigned long *target);

/*
 * The same as xk_branch(), with the same decoder each time. XK_SHAPE_READ bytes may be read,
 * whatever they are after `room`. Without `shapes`, the decoder is asked about each instruction.
 */
static inline unsigned int xk_shape_branch(struct xk_shapes *shapes, const __u8 *bytes,
					   unsigned int room, unsigned long address,
					   xk_decode_fn decode, unsigned long *target)
{
	__u64 first, shape;
	unsigned int len;

	memcpy(&first, bytes, XK_SHAPE_READ);
	shape = shapes ? xk_shape_find(shapes, first) : 0;
	len = xk_shape_field(shape, XK_SHAPE_LEN);
	if (!len || len > room)
		return xk_shape_ask(shapes, bytes, room, address, decode, target);
	*target = 0;
	switch (xk_shape_field(shape, XK_SHAPE_DISTANCE_LEN)) {
	case sizeof(__s8):
		*target = address + len + (__s8)bytes[len - 1];
		break;
	case sizeof(__s32):
		*target = address + len + *(const __s32 *)(bytes + len - sizeof(__s32));
		break;
	}
	return len;
}

#endif /* _XK_SHAPE_H */
