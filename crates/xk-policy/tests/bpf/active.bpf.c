// SPDX-License-Identifier: GPL-2.0-only
/* The value says how many programs the kernel knows to be at work on this CPU. */
#include "xk.bpf.h"

extern const int bpf_prog_active __ksym;

XK_TUNE(active, "HOLD")
{
	const int *active = bpf_this_cpu_ptr(&bpf_prog_active);

	xk_set(xk_ctx, 100 + *active);
	return 0;
}
