// SPDX-License-Identifier: GPL-2.0-only
/* ... and after a look into a map (O4). */
#include "policy.h"

HINTS;

SEC("kprobe")
int xk_bench_o4(struct pt_regs *context)
{
	u32 thread = bpf_get_current_pid_tgid();
	u64 word = 0;

	if (!xk_transition_done(context))
		return 0;
	bpf_probe_read_kernel(&word, sizeof(word), (void *)bpf_get_current_task());
	if (word == ~0ULL || bpf_map_lookup_elem(&hints, &thread))
		return 0;
	xk_set(context, 5);
	return 0;
}
