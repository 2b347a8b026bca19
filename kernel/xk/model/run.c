// SPDX-License-Identifier: GPL-2.0-only
/* Counts and reports an update that could not access memory. */
#include <linux/kprobes.h>

#include "model/run.h"
#include "model/trace.h"

int notrace xk_fault(const struct xk_live_site *site)
{
	this_cpu_inc(site->counters->faults);
	trace_xk_fault(site);
	return -EFAULT;
}

NOKPROBE_SYMBOL(xk_fault);
