/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs of the benchmark of probes have in common; no more than they need. */
#ifndef _PROBE_H
#define _PROBE_H

#define SEC(name) __attribute__((section(name), used))

typedef unsigned int u32;
typedef unsigned long long u64;

/* As the kernel has them on x86-64. */
struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	u64 orig_ax, ip, cs, flags, sp, ss;
};

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;

/* A counter of each CPU. */
#define COUNTER							\
	struct {						\
		int (*type)[6];					\
		int (*max_entries)[1];				\
		u32 *key;					\
		u64 *value;					\
	} counter SEC(".maps")

#define COUNT()							\
	({							\
		u32 first = 0;					\
		u64 *value = bpf_map_lookup_elem(&counter, &first);	\
								\
		if (value)					\
			*value += 1;				\
	})

char LICENSE[] SEC("license") = "GPL";

#endif /* _PROBE_H */
