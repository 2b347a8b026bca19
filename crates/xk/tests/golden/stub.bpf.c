// SPDX-License-Identifier: GPL-2.0-only
/*
 * BLK_MAX_REQUEST_COUNT: block/blk.h:L335:32:0
 * default 32, values 1 to 1073741823 (proved); mode task
 *
 * site 0: blk_add_rq_to_plug+0x59, block/blk-mq.c
 *	XK_VAR(plug)	struct blk_plug *
 *	no last: optimised away
 * site 1: example_full+0x10 [example], drivers/example.c
 */
#include "xk.bpf.h"

XK_TUNE(blk_max_request_count, "BLK_MAX_REQUEST_COUNT")
{
	/* Set nothing until all threads have switched to this policy. */
	if (!xk_transition_done(xk_ctx))
		return 0;

	/* Where the policy sets nothing, the default is used. */
	xk_set(xk_ctx, xk_default(xk_ctx));
	return 0;
}
