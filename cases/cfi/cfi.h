/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Compares the target of each indirect call with the functions whose address is taken. A call of
 * anything else is counted, by the call and its target.
 */
#ifndef _CFI_H
#define _CFI_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "xk_probe.bpf.h"
#include "xk_taken.bpf.h"

struct call {
	u64 site;
	u64 target;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct call);
	__type(value, u64);
} unknown_calls SEC(".maps");

/* Calls that unknown_calls has no room for. */
u64 lost;

/* Counts it; whether it is the first one of its kind. */
static __noinline bool count_unknown(u64 site, u64 target)
{
	struct call call = { .site = site, .target = target };
	u64 *number = bpf_map_lookup_elem(&unknown_calls, &call), one = 1;

	if (number) {
		__sync_fetch_and_add(number, 1);
		return false;
	}
	if (bpf_map_update_elem(&unknown_calls, &call, &one, BPF_NOEXIST)) {
		__sync_fetch_and_add(&lost, 1);
		return false;
	}
	return true;
}

/* The target of the call if it is unknown, and the first one of its kind. */
static __always_inline u64 unknown(struct pt_regs *ctx)
{
	u64 target = xk_call_target(ctx);

	if (xk_is_taken(target) || !count_unknown(ctx->ip, target))
		return 0;
	return target ?: 1;
}

char LICENSE[] SEC("license") = "GPL";

#endif /* _CFI_H */
