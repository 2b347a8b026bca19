/* SPDX-License-Identifier: GPL-2.0-only */
/* The handlers of probes: run.c and enter.S. */
#ifndef _XK_PROBE_RUN_H
#define _XK_PROBE_RUN_H

#include <asm/ibt.h>

#include "probe/probe.h"

/* Called by slots. */
extern u8 xk_probe_enter[];

/* Called only by enter.S, directly, with the registers of the point. */
__noendbr void xk_probe_run(struct pt_regs *regs, const struct xk_point *point);

/* The handler of a kprobe. */
int xk_probe_hit(struct kprobe *kprobe, struct pt_regs *regs);

#endif /* _XK_PROBE_RUN_H */
