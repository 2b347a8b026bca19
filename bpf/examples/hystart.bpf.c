// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slow start on long paths: HyStart leaves it when the round trip grows by a
 * share of its minimum, minimum >> V. A small V for flows with a long round trip,
 * the default for the others (the paper's Figure 7).
 */
#include "xk.bpf.h"

/* Microseconds from which on a path is long. */
#define LONG 80000

XK_TUNE(hystart, "net/ipv4/tcp_cubic.c:L439:3:0")
{
	struct bictcp *ca = XK_VAR(ca);

	if (!xk_transition_done(xk_ctx))
		return 0;
	if (BPF_CORE_READ(ca, curr_rtt) >= LONG)
		xk_set(xk_ctx, 1);
	return 0;
}
