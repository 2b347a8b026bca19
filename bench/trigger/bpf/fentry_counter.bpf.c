// SPDX-License-Identifier: GPL-2.0-only
/* Counts in a map, behind a trampoline. */
#include "probe.h"

COUNTER;

SEC("fentry/vfs_write")
int xk_bench_fentry_counter(u64 *context)
{
	COUNT();
	return 0;
}
