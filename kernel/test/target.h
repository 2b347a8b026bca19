/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions of target_text.S, target_detours.S, target_several.S, target_shields.S,
 * target_twin.S and target_registers.S, and the data of target.c.
 */
#ifndef _XK_TARGET_H
#define _XK_TARGET_H

#include <linux/percpu.h>
#include <linux/seq_file.h>
#include <linux/types.h>

int xk_target_value(void);
int xk_target_branch(int x);
int xk_target_roomy(int x);
int xk_target_tight(int x);
int xk_target_brief(int x);
int xk_target_access(unsigned long at);
int xk_target_identity(int x);
int xk_target_call(void);
int xk_target_padded(void);
int xk_target_into(int x);
int xk_target_short(void);
int xk_target_careful(int *x);
int xk_target_forbidden(void);
int xk_target_displaced(int x);
int xk_target_untouchable(void);
int xk_target_skip(int x);
int xk_target_pair(int x, int y);
int xk_target_twice(void);
int xk_target_compare(int x);
int xk_target_memory(int *x, int *other);
void xk_target_store(int *x);
int xk_target_select(int x);
int xk_target_global(void);
int xk_target_above(void);
int xk_target_array(int i);
int xk_target_per_cpu(void);
int xk_target_twin_here(void);
int xk_target_twin_there(void);
int xk_target_many(void);
int xk_target_several(void);
int xk_target_registers(void);

/* Data that they read, and objects that are 32 only because of their initialisers. */
extern int xk_target_bias;
extern int xk_target_biases[2];
DECLARE_PER_CPU(int, xk_target_cpu_bias);

struct xk_target_limits {
	u64 quad;
	u32 word;
	u16 half;
	u8 byte;
};

extern struct xk_target_limits xk_target_limits;
extern int xk_target_sealed;
extern const int xk_target_fixed;

/*
 * target_flags.c: counts faults of updates, and how many of them happen with access to user memory
 */
int xk_target_flags_init(void);
void xk_target_flags_exit(void);
void xk_target_flags_show(struct seq_file *file);

#endif /* _XK_TARGET_H */
