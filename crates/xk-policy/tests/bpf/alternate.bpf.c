// SPDX-License-Identifier: GPL-2.0-only
/* Never the same value twice: whoever asks twice gets two answers. */
#include "xk.bpf.h"

u64 next;

static __always_inline int alternate(xk_handle_t xk_ctx)
{
	xk_set(xk_ctx, 100 + __sync_fetch_and_add(&next, 1) % 1000);
	return 0;
}

XK_TUNE(balance, "BALANCE")
{
	return alternate(xk_ctx);
}

XK_TUNE(agree, "AGREE")
{
	return alternate(xk_ctx);
}

XK_TUNE(recurse, "RECURSE")
{
	return alternate(xk_ctx);
}

XK_TUNE(sleeping, "SLEEP")
{
	return alternate(xk_ctx);
}

XK_TUNE(object, "OBJECT")
{
	return alternate(xk_ctx);
}
