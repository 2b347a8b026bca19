/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a CPU continues that hits a breakpoint of a change: int3.c. */
#ifndef _XK_INT3_H
#define _XK_INT3_H

#include <linux/build_bug.h>
#include <linux/linkage.h>
#include <linux/types.h>

/*
 * An entry of the kernel's table of breakpoints. In Linux 6.12 struct text_poke_loc, in 7.3 struct
 * smp_text_poke_loc, of arch/x86/kernel/alternative.c. A CPU that hits the breakpoint at `_stext +
 * from` executes a jump in its place, from its end on.
 */
struct xk_int3 {
	s32 from;
	s32 distance;
	u8 len;
	u8 opcode;
	u8 text[5];
	u8 old;
};

static_assert(sizeof(struct xk_int3) == 16);

/* Describes the breakpoint at `address` and where a CPU that hits it continues. */
void xk_int3_fill(struct xk_int3 *entry, unsigned long address, unsigned long target);

/*
 * Finds the kernel's table, and tries it. Returns NULL, or what is missing. Sleeps.
 */
const char *xk_int3_init(void);

/* Returns how many breakpoints the table can hold, at least 1. */
unsigned int xk_int3_capacity(void);

/*
 * Puts these breakpoints into the table, in which none of the kernel is active, and sorts them.
 * `nr` is from 1 to the capacity. `entries` stay until xk_int3_remove(), which waits for CPUs that
 * use them. The caller holds the text lock, or is in a stop of one who holds it.
 */
void xk_int3_insert(struct xk_int3 *entries, unsigned int nr);
void xk_int3_remove(void);

/*
 * int3_trial.S: has a breakpoint at xk_int3_trial_at. Returns XK_INT3_BY_TABLE if the CPU continues
 * at xk_int3_trial_target.
 */
#define XK_INT3_BY_TABLE 1
asmlinkage int xk_int3_trial(void);
extern u8 xk_int3_trial_at[], xk_int3_trial_target[];

#endif /* _XK_INT3_H */
