// SPDX-License-Identifier: GPL-2.0-only
/* Reads two arguments of a function, and compares them. */
#include "probe.h"

SEC("kprobe")
int xk_bench_args(struct pt_regs *context)
{
	return context->di == context->si;
}
