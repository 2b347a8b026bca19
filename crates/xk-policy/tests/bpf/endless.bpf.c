// SPDX-License-Identifier: GPL-2.0-only
#include "xk.bpf.h"

XK_TUNE(endless, "HOLD")
{
	volatile int i = 0;

	while (i < 1)
		i = i;
	return 0;
}
