// SPDX-License-Identifier: GPL-2.0-only
/* A value for threads that a map names. What the functions returned is kept. */
#include "xk.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} wanted SEC(".maps");

struct seen {
	s64 set;
	u64 before;
	u64 after;
	u64 original;
	u64 done;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct seen);
} seen SEC(".maps");

XK_TUNE(by_thread, "HOLD")
{
	u32 thread = bpf_get_current_pid_tgid(), zero = 0;
	u64 *value = bpf_map_lookup_elem(&wanted, &thread);
	struct seen *seen_here = bpf_map_lookup_elem(&seen, &zero);

	if (!value || !seen_here)
		return 0;
	seen_here->original = xk_default(xk_ctx);
	seen_here->before = xk_value(xk_ctx);
	seen_here->done = xk_transition_done(xk_ctx);
	seen_here->set = xk_set(xk_ctx, *value);
	seen_here->after = xk_value(xk_ctx);
	return 0;
}
