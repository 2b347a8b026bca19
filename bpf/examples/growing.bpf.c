// SPDX-License-Identifier: GPL-2.0-only
/*
 * An adaptive plug size. The plugs of a thread start small. The size doubles, up to a limit,
 * whenever a plug was full when it was flushed; otherwise it is halved.
 */
#include "xk.bpf.h"

#define FIRST 16
#define LAST 128

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} sizes SEC(".maps");

static __always_inline u32 *size_of_plugs(void)
{
	u32 first = FIRST;

	return bpf_task_storage_get(&sizes, bpf_get_current_task_btf(), &first,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
}

SEC("tp/block/block_unplug")
int flushed(struct trace_event_raw_block_unplug *event)
{
	u32 *size = size_of_plugs();

	if (!size)
		return 0;
	if (event->nr_rq >= *size)
		*size = *size < LAST ? 2 * *size : LAST;
	else
		*size = *size > FIRST ? *size / 2 : FIRST;
	return 0;
}

XK_TUNE(growing, "BLK_MAX_REQUEST_COUNT")
{
	u32 *size = size_of_plugs();

	if (size)
		xk_set(xk_ctx, *size);
	return 0;
}
