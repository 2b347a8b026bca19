// SPDX-License-Identifier: GPL-2.0-only
/* Wants to change what a function returns. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

SEC("xk/override")
int change(struct pt_regs *context)
{
	bpf_override_return(context, -1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
