// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many rounds a CPU makes before it leaves the rest to ksoftirqd, for each CPU
 * by itself: few where a thread must not be kept waiting, many where packets per
 * second count. User space writes it into a map; 0: as compiled.
 */
#include "xk.bpf.h"

#define CPUS 256

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS);
	__type(key, u32);
	__type(value, u32);
} rounds SEC(".maps");

XK_TUNE(by_cpu, "MAX_SOFTIRQ_RESTART")
{
	u32 cpu = bpf_get_smp_processor_id();
	u32 *chosen = bpf_map_lookup_elem(&rounds, &cpu);

	if (chosen && *chosen)
		xk_set(xk_ctx, *chosen);
	return 0;
}
