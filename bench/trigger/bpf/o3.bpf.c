// SPDX-License-Identifier: GPL-2.0-only
/* ... after a read of kernel memory (O3). */
#include "policy.h"

SEC("kprobe")
int xk_bench_o3(struct pt_regs *context)
{
	u64 word = 0;

	if (!xk_transition_done(context))
		return 0;
	bpf_probe_read_kernel(&word, sizeof(word), (void *)bpf_get_current_task());
	if (word == ~0ULL)
		return 0;
	xk_set(context, 5);
	return 0;
}
