// SPDX-License-Identifier: GPL-2.0-only
/* A function of kernel/bench, which writes registers for whoever calls it. */
#include "xk.bpf.h"

extern int xk_bench_set_ax(struct pt_regs *regs__ign, u64 value) __ksym;

XK_TUNE(calls, "HOLD")
{
	xk_bench_set_ax(ctx, 77);
	return 0;
}
