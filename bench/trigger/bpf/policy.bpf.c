// SPDX-License-Identifier: GPL-2.0-only
/* A policy that sets a value: beside kfunc.bpf.c. */
#include "policy.h"

SEC("kprobe")
int xk_bench_policy(struct pt_regs *context)
{
	xk_set(context, 5);
	return 0;
}
