/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A queue of numbers, of bounded size: what is pushed first is popped first. Who uses it is alone
 * with it. Nothing here loops, so a run is not ended in it.
 */
#ifndef _XK_FLEX_RING_H
#define _XK_FLEX_RING_H

#include "base.h"

struct xk_ring {
	__u64 mask;		/* one less than the most numbers */
	__u64 popped;		/* since the beginning */
	__u64 pushed;
	__u64 numbers[];
};

/* A queue of at most 2^bits numbers, up to 24 bits; NULL without memory. */
xk_fn struct xk_ring __heap *xk_ring_new(__u32 bits)
{
	struct xk_ring __heap *ring;

	if (bits > 24)
		return xk_null;
	ring = xk_malloc(sizeof(*ring) + ((__u64)sizeof(ring->numbers[0]) << bits));
	if (ring) {
		ring->mask = (1ull << bits) - 1;
		xk_zero(ring->popped);
		xk_zero(ring->pushed);
	}
	return ring;
}

/* How many numbers it has. */
xk_inline __u64 xk_ring_length(struct xk_ring __heap *ring)
{
	return ring->pushed - ring->popped;
}

/* Whether there was room. */
xk_fn int xk_ring_push(struct xk_ring __heap *ring, __u64 number)
{
	if (xk_ring_length(ring) > ring->mask)
		return 0;
	ring->numbers[ring->pushed++ & ring->mask] = number;
	return 1;
}

/* Whether there was a number. */
xk_fn int xk_ring_pop(struct xk_ring __heap *ring, __u64 *number)
{
	if (!xk_ring_length(ring))
		return 0;
	*number = ring->numbers[ring->popped++ & ring->mask];
	return 1;
}

#endif
