// SPDX-License-Identifier: GPL-2.0-only
#include "xk.bpf.h"

XK_TUNE(overrides, "HOLD")
{
	bpf_override_return(ctx, 77);
	return 0;
}
