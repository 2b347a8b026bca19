// SPDX-License-Identifier: GPL-2.0-only
/* Records the registers at the entry of a function. Does not ask which function it is. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

struct pt_regs seen;
unsigned long stack[8];
unsigned long cookie;
unsigned long runs;

SEC("xk/entry")
int entry(struct pt_regs *context)
{
	bpf_probe_read_kernel(&seen, sizeof(seen), context);
	bpf_get_stack(context, stack, sizeof(stack), 0);
	cookie = bpf_get_attach_cookie(context);
	__sync_fetch_and_add(&runs, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
