// SPDX-License-Identifier: GPL-2.0-only
/* Changes a map, so it calls functions of the kernel that can be probed. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

unsigned long runs;

SEC("xk/update")
int update(struct pt_regs *context)
{
	u32 key = 1;
	u64 value = ++runs;

	bpf_map_update_elem(&counts, &key, &value, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
