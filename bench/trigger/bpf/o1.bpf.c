// SPDX-License-Identifier: GPL-2.0-only
/* Whether the transition is over (O1 of the paper's Table 3). */
#include "policy.h"

SEC("kprobe")
int xk_bench_o1(struct pt_regs *context)
{
	if (!xk_transition_done(context))
		return 0;
	return 0;
}
