// SPDX-License-Identifier: GPL-2.0-only
/*
 * An application declares which of its threads read at random: it writes their thread IDs, and the
 * value for each, into a map.
 *
 *  *	xk load hints.bpf.c
 *  *	# in the application: bpf_obj_get("/sys/fs/bpf/xk/hints/hint_map")
 *
 * A thread that reads at random gains nothing from a plug that waits for more requests.
 */
#include "xk.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);	/* thread */
	__type(value, u32);
} hint_map SEC(".maps");

XK_TUNE(hints, "BLK_MAX_REQUEST_COUNT")
{
	u32 thread = bpf_get_current_pid_tgid();
	u32 *hint = bpf_map_lookup_elem(&hint_map, &thread);

	if (hint)
		xk_set(xk_ctx, *hint);
	return 0;
}
