// SPDX-License-Identifier: GPL-2.0-only
/* Reads registers that are stored for every program, and none that are not. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

unsigned long first, second, base, place;
unsigned long runs;

SEC("xk/few")
int few(struct pt_regs *context)
{
	first = context->di;
	second = context->si;
	base = context->bp;
	place = context->ip;
	runs++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
