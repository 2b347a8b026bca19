// SPDX-License-Identifier: GPL-2.0-only
/*
 * One policy for all disks: plugs for a disk that rotates hold 128 requests, so
 * that its scheduler sees all of a segment before the first of them is sent. All
 * others keep what they have.
 *
 * Whose requests a plug holds is told by its first.
 */
#include "xk.bpf.h"

/* Of the two places, the one where a request is added; at the other, a plug is empty. */
#define ADDING 1
#define BLK_FEAT_ROTATIONAL (1u << 2)
#define ROTATING 128

XK_TUNE(by_device, "BLK_MAX_REQUEST_COUNT")
{
	struct blk_plug *plug = XK_VAR(plug);
	struct request *first;

	if (xk_site(xk_ctx) != ADDING || !xk_transition_done(xk_ctx))
		return 0;
	first = BPF_CORE_READ(plug, mq_list.head);
	if (BPF_CORE_READ(first, q, limits.features) & BLK_FEAT_ROTATIONAL)
		xk_set(xk_ctx, ROTATING);
	return 0;
}
