// SPDX-License-Identifier: GPL-2.0-only
/*
 * A policy that works with other programs: what a kretprobe has noted for a
 * thread decides, and a tracepoint counts.
 */
#include "xk.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} calls SEC(".maps");

u64 switches;

/* Reading /proc/uptime. */
SEC("kretprobe/uptime_proc_show")
int BPF_KRETPROBE(asked_for_time)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 *count = bpf_task_storage_get(&calls, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (count)
		(*count)++;
	return 0;
}

SEC("tp/sched/sched_switch")
int switched(void *ctx)
{
	__sync_fetch_and_add(&switches, 1);
	return 0;
}

XK_TUNE(by_history, "HOLD")
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 *count = bpf_task_storage_get(&calls, task, NULL, 0);

	if (count && *count >= 3)
		xk_set(xk_ctx, 500);
	return 0;
}
