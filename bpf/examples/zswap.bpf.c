// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes the batch of one shrinker: zswap writes back less at a time, and all others keep the
 * default. Shrinkers have names only in kernels with CONFIG_SHRINKER_DEBUG (the paper's Figure 26
 * reads them), so this policy identifies them by their function. The constant has one site, so the
 * policy runs for each shrinker.
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
