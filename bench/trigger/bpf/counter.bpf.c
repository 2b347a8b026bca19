// SPDX-License-Identifier: GPL-2.0-only
/* Counts in a map. */
#include "probe.h"

COUNTER;

SEC("kprobe")
int xk_bench_counter(struct pt_regs *context)
{
	COUNT();
	return 0;
}
