// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slow start on long paths. HyStart ends slow start when the round-trip time grows by a fraction of
 * its minimum, minimum >> V. Flows with a long round-trip time use a small V, others the default
 * (the paper's Figure 7).
 */
#include "xk.bpf.h"

/* Minimum round-trip time of a long path, in microseconds. */
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
