// SPDX-License-Identifier: GPL-2.0-only
/* Reads a register that is stored only for programs that read it, behind a branch. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

unsigned long rare;
unsigned long runs;

SEC("xk/rare")
int read_rare(struct pt_regs *context)
{
	if (runs++ & 1)
		rare = context->r13;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
