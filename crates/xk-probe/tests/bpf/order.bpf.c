// SPDX-License-Identifier: GPL-2.0-only
/* Programs that tell in which order they ran. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

unsigned long number;
unsigned long first_at, second_at;

SEC("xk/first")
int first(struct pt_regs *context)
{
	first_at = ++number;
	return 0;
}

SEC("xk/second")
int second(struct pt_regs *context)
{
	second_at = ++number;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
