/* SPDX-License-Identifier: GPL-2.0-only */
/* The handlers of probes: run.c and enter.S. */
#ifndef _XK_PROBE_RUN_H
#define _XK_PROBE_RUN_H

#include <asm/ibt.h>

#include "probe/probe.h"

/* Called by slots. The second one stores no r12 to r15. */
extern u8 xk_probe_enter[];
extern u8 xk_probe_enter_few[];

/* Called only by enter.S, directly, with the registers of the point. */
__noendbr void xk_probe_run(struct pt_regs *regs, const struct xk_point *point);

/*
 * Functions of acts. Only the hits of the act are counted; all hooks of the point with xk_point.all
 * are served. The second argument is the act.
 */
unsigned int xk_probe_count(const void *regs, const struct bpf_insn *unused);
unsigned int xk_probe_run_all(const void *regs, const struct bpf_insn *act);
DECLARE_PER_CPU(u64, xk_probe_uncounted);

/* Where no slot calls. The caller disables preemption. */
void xk_probe_run_at(const struct xk_point *point, struct pt_regs *regs);

/* The handler of a kprobe. */
int xk_probe_hit(struct kprobe *kprobe, struct pt_regs *regs);

#endif /* _XK_PROBE_RUN_H */
