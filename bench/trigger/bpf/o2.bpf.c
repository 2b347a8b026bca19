// SPDX-License-Identifier: GPL-2.0-only
/* ... and a value is set, and the update made with it (O2). */
#include "policy.h"

SEC("kprobe")
int xk_bench_o2(struct pt_regs *context)
{
	if (!xk_transition_done(context))
		return 0;
	xk_set(context, 5);
	return 0;
}
