// SPDX-License-Identifier: GPL-2.0-only
/* Records the registers that it finds, what helpers return, and how often it runs. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

struct pt_regs seen;
unsigned long stack[8];
long depth;
unsigned long cookie;
unsigned long function;
unsigned long runs;

SEC("xk/look")
int look(struct pt_regs *context)
{
	bpf_probe_read_kernel(&seen, sizeof(seen), context);
	depth = bpf_get_stack(context, stack, sizeof(stack), 0);
	cookie = bpf_get_attach_cookie(context);
	function = bpf_get_func_ip(context);
	__sync_fetch_and_add(&runs, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
