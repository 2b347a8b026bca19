// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long requests to disks wait in the scheduler: from the call of the scheduler's
 * insert_requests() to the call of the driver's queue_rq(), both in the middle of functions of the
 * block layer.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "xk_probe.bpf.h"

/* Of a plug, with room: BLK_MAX_REQUEST_COUNT is 32. */
#define MOST 128

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);	/* request */
	__type(value, u64);	/* ns */
} waiting SEC(".maps");

/* Requests by the binary logarithm of the nanoseconds that they waited. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} histogram SEC(".maps");

/* Requests that waiting has no room for, or that came in longer lists. */
u64 lost;

static __always_inline u32 logarithm(u64 number)
{
	u32 bits = 0;

	for (u32 step = 32; step; step >>= 1) {
		if (number >> step) {
			number >>= step;
			bits += step;
		}
	}
	return bits;
}

/* insert_requests(hctx, list, flags) */
SEC("xk/blk_mq_insert_request@indirect-call,blk_mq_*plug_list@indirect-call")
int insert(struct pt_regs *ctx)
{
	struct blk_mq_hw_ctx *hctx = (void *)PT_REGS_PARM1(ctx);
	struct list_head *head = (void *)PT_REGS_PARM2(ctx), *at;
	u64 target = xk_call_target(ctx);
	u64 now = bpf_ktime_get_ns();

	/* These functions make other calls, too. */
	if (target != (u64)BPF_CORE_READ(hctx, queue, elevator, type, ops.insert_requests))
		return 0;
	at = BPF_CORE_READ(head, next);
	for (u32 i = 0; i < MOST && at != head; i++) {
		u64 request = (u64)at - bpf_core_field_offset(struct request, queuelist);

		if (bpf_map_update_elem(&waiting, &request, &now, BPF_ANY))
			__sync_fetch_and_add(&lost, 1);
		at = BPF_CORE_READ(at, next);
	}
	if (at != head)
		__sync_fetch_and_add(&lost, 1);
	return 0;
}

/* queue_rq(hctx, data) */
SEC("xk/blk_mq_dispatch_rq_list@indirect-call")
int dispatch(struct pt_regs *ctx)
{
	struct blk_mq_hw_ctx *hctx = (void *)PT_REGS_PARM1(ctx);
	struct blk_mq_queue_data *data = (void *)PT_REGS_PARM2(ctx);
	u64 target = xk_call_target(ctx), request, *since, *number;
	u32 slot;

	if (target != (u64)BPF_CORE_READ(hctx, queue, mq_ops, queue_rq))
		return 0;
	request = (u64)BPF_CORE_READ(data, rq);
	since = bpf_map_lookup_elem(&waiting, &request);
	if (!since)
		return 0;
	slot = logarithm(bpf_ktime_get_ns() - *since);
	bpf_map_delete_elem(&waiting, &request);
	number = bpf_map_lookup_elem(&histogram, &slot);
	if (number)
		*number += 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
