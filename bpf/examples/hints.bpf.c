// SPDX-License-Identifier: GPL-2.0-only
/*
 * An application says which of its threads read at random: it writes their
 * numbers, and the value that they should have, into a map.
 *
 *	xk load hints.bpf.c
 *	# in the application: bpf_obj_get("/sys/fs/bpf/xk/hints/hint_map")
 *
 * A plug of a thread that reads at random gains nothing from waiting for more.
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
