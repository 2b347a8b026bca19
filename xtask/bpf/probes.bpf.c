// SPDX-License-Identifier: GPL-2.0-only
/* Counts its runs at each of many instructions, which have numbers. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define MOST 65536

/* Read at once, since what it counts goes on meanwhile. */
unsigned long runs[MOST];

SEC("xk/count")
int count(struct pt_regs *context)
{
	unsigned long number = bpf_get_attach_cookie(context);

	if (number < MOST)
		__sync_fetch_and_add(&runs[number], 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
