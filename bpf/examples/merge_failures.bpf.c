// SPDX-License-Identifier: GPL-2.0-only
/*
 * If many consecutive requests of a thread cannot be merged, the thread reads or writes at random.
 * Its plugs are flushed sooner.
 */
#include "xk.bpf.h"

/* Consecutive failures after which a thread counts as random. */
#define THRESHOLD 16
/* The plug size of such a thread. */
#define SMALL 10

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} failures SEC(".maps");

SEC("kretprobe/blk_attempt_plug_merge")
int BPF_KRETPROBE(merged, bool merged_it)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 *count = bpf_task_storage_get(&failures, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (count)
		*count = merged_it ? 0 : *count + 1;
	return 0;
}

XK_TUNE(random_threads, "BLK_MAX_REQUEST_COUNT")
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 *count = bpf_task_storage_get(&failures, task, NULL, 0);

	if (count && *count >= THRESHOLD)
		xk_set(xk_ctx, SMALL);
	return 0;
}
