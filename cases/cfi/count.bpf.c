// SPDX-License-Identifier: GPL-2.0-only
/* Control-flow integrity of indirect calls: counts the calls of functions that nothing refers to. */
#include "cfi.h"

SEC("xk/*@indirect-call,*:*@indirect-call")
int count_calls(struct pt_regs *ctx)
{
	unknown(ctx);
	return 0;
}
