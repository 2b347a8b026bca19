// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batch of one shrinker out of all: that of zswap, which writes back what it
 * drops. Shrinkers have names in kernels with CONFIG_SHRINKER_DEBUG only; what tells
 * them apart everywhere is their function. User space writes the batch into a map;
 * 0: as compiled.
 */
#include "xk.bpf.h"

extern const void zswap_shrinker_scan __ksym;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} batch SEC(".maps");

XK_TUNE(zswap, "SHRINK_BATCH")
{
	struct shrinker *shrinker = XK_VAR(shrinker);
	u32 zero = 0;
	u32 *chosen = bpf_map_lookup_elem(&batch, &zero);

	if (chosen && *chosen &&
	    (const void *)BPF_CORE_READ(shrinker, scan_objects) == &zswap_shrinker_scan)
		xk_set(xk_ctx, *chosen);
	return 0;
}
