// SPDX-License-Identifier: GPL-2.0-only
/* Does nothing, behind an fprobe. */
#include "probe.h"

SEC("kprobe.multi/vfs_write")
int xk_bench_multi(struct pt_regs *context)
{
	return 0;
}
