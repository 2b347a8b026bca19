// SPDX-License-Identifier: GPL-2.0-only
/* As count.bpf.c, and prints the first call of each kind. */
#include "cfi.h"

SEC("xk/*@indirect-call,*:*@indirect-call")
int report_calls(struct pt_regs *ctx)
{
	u64 target = unknown(ctx);

	if (target)
		bpf_printk("%pS calls %pS, whose address nothing takes", (void *)ctx->ip, (void *)target);
	return 0;
}
