// SPDX-License-Identifier: GPL-2.0-only
/* Does nothing, behind a trampoline. */
#include "probe.h"

SEC("fentry/vfs_write")
int xk_bench_fentry(u64 *context)
{
	return 0;
}
