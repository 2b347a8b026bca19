// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many pages are taken out of reach at once when they move to another node,
 * for each process by itself: few for one that others wait for. User space writes
 * it into a map, by process; who is not in it moves as many as compiled.
 */
#include "xk.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);	/* process */
	__type(value, u32);
} batches SEC(".maps");

XK_TUNE(by_process, "NR_MAX_BATCHED_MIGRATION")
{
	u32 process = bpf_get_current_pid_tgid() >> 32;
	u32 *chosen = bpf_map_lookup_elem(&batches, &process);

	if (chosen)
		xk_set(xk_ctx, *chosen);
	return 0;
}
