/* SPDX-License-Identifier: GPL-2.0-only */
/* The kfunc that the eBPF programs of the benchmark call. */
#ifndef _XK_BENCH_H
#define _XK_BENCH_H

#include <linux/ptrace.h>
#include <linux/types.h>

int xk_bench_set_ax(struct pt_regs *regs__ign, u64 value);

#endif /* _XK_BENCH_H */
