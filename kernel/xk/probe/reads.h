/* SPDX-License-Identifier: GPL-2.0-only */
/* Which registers of its context a program may read: reads.c. */
#ifndef _XK_PROBE_READS_H
#define _XK_PROBE_READS_H

#include <linux/types.h>

struct bpf_prog;

/*
 * Whether the program may read r12 to r15 of the probed code. False only if it certainly does not.
 * May sleep.
 */
bool xk_program_reads_all(const struct bpf_prog *program);

#endif /* _XK_PROBE_READS_H */
