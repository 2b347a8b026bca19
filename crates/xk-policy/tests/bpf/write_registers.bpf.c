// SPDX-License-Identifier: GPL-2.0-only
#include "xk.bpf.h"

XK_TUNE(writes, "HOLD")
{
	ctx->ax = 77;
	return 0;
}
