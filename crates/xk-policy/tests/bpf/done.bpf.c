// SPDX-License-Identifier: GPL-2.0-only
/* As the paper's: nothing until all threads have switched. */
#include "xk.bpf.h"

XK_TUNE(when_done, "HOLD")
{
	if (!xk_transition_done(xk_ctx))
		return 0;
	xk_set(xk_ctx, 77);
	return 0;
}
