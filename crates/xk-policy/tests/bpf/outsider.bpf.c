// SPDX-License-Identifier: GPL-2.0-only
/* A kprobe of somebody else that calls what is for policies only. */
#include "xk.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, s64);
} answers SEC(".maps");

SEC("kprobe/uptime_proc_show")
int outsider(struct pt_regs *ctx)
{
	s64 answer = xk_set((xk_handle_t)ctx, 77);
	u32 zero = 0;

	bpf_map_update_elem(&answers, &zero, &answer, BPF_ANY);
	return 0;
}

XK_TUNE(nothing, "HOLD")
{
	return 0;
}
