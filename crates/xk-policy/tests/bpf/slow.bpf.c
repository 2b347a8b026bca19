// SPDX-License-Identifier: GPL-2.0-only
/* Takes so long that interrupts come, and finds what it needs in them. */
#include "xk.bpf.h"

/* Longer than some interrupts are apart, all in all. */
#define SPIN_NS 300000
#define MAX_TURNS 1000000

static long turn(u32 index, u64 *until)
{
	return bpf_ktime_get_ns() > *until;
}

XK_TUNE(slow, "ELSEWHERE")
{
	u64 until = bpf_ktime_get_ns() + SPIN_NS;

	bpf_loop(MAX_TURNS, turn, &until, 0);
	xk_set(xk_ctx, 77);
	return 0;
}
