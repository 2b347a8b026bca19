// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batch of one shrinker: zswap writes back less at a time, all others keep
 * theirs. Shrinkers have names in kernels with CONFIG_SHRINKER_DEBUG only (the
 * paper's Figure 26 reads them); what tells them apart everywhere is their
 * function. The constant has one site, so that the policy is asked for each.
 */
#include "xk.bpf.h"

#define BATCH 24

extern const void zswap_shrinker_scan __ksym;

XK_TUNE(zswap, "SHRINK_BATCH")
{
	struct shrinker *shrinker = XK_VAR(shrinker);

	if ((const void *)BPF_CORE_READ(shrinker, scan_objects) == &zswap_shrinker_scan)
		xk_set(xk_ctx, BATCH);
	return 0;
}
