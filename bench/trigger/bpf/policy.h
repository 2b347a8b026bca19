/* SPDX-License-Identifier: GPL-2.0-only */
/* What the policies that are measured have in common; no more than they need. */
#ifndef _POLICY_H
#define _POLICY_H

#define SEC(name) __attribute__((section(name), used))

typedef unsigned int u32;
typedef unsigned long long u64;

/* The loader compares kinds of types, not members. */
struct pt_regs {};

extern long xk_set(struct pt_regs *ctx, u64 value) SEC(".ksyms");
extern _Bool xk_transition_done(struct pt_regs *ctx) SEC(".ksyms");

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*const bpf_get_current_task)(void) = (void *)35;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;

/* As an application would say which of its threads are meant. */
#define HINTS							\
	struct {						\
		int (*type)[1];					\
		int (*max_entries)[64];				\
		u32 *key;					\
		u32 *value;					\
	} hints SEC(".maps")

char LICENSE[] SEC("license") = "GPL";

#endif /* _POLICY_H */
