// SPDX-License-Identifier: GPL-2.0-only
#include "xk.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} others SEC(".maps");

XK_TUNE(jumps, "HOLD")
{
	bpf_tail_call(ctx, &others, 0);
	return 0;
}
