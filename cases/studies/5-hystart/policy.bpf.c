// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slow start on long paths: HyStart leaves it when the round trip has grown by
 * clamp(minimum >> shift, least, most). On a path of 80 ms that is 10 ms, less than
 * a radio link varies by. All three are chosen together, by the flow's own smallest
 * round trip, in one transaction: shift or upper limit without the other would be of
 * no use. Short paths keep what they have.
 */
#include "xk.bpf.h"

/* Microseconds from which on a path is long. */
#define LONG 60000

static __always_inline bool is_long(struct bictcp *ca)
{
	return BPF_CORE_READ(ca, delay_min) >= LONG;
}

XK_TUNE(shift, "net/ipv4/tcp_cubic.c:L439:3:0")
{
	if (is_long(XK_VAR(ca)))
		xk_set(xk_ctx, 1);
	return 0;
}

XK_TUNE(most, "HYSTART_DELAY_MAX")
{
	if (is_long(XK_VAR(ca)))
		xk_set(xk_ctx, 32000);
	return 0;
}

XK_TUNE(least, "HYSTART_DELAY_MIN")
{
	if (is_long(XK_VAR(ca)))
		xk_set(xk_ctx, 12000);
	return 0;
}
