// SPDX-License-Identifier: GPL-2.0-only
/* A kprobe program that writes a register, through a kfunc of kernel/bench. */
#define SEC(name) __attribute__((section(name), used))

/* The loader compares kinds of types, not members. */
struct pt_regs {};

extern int xk_bench_set_ax(struct pt_regs *regs__ign, unsigned long long value)
	SEC(".ksyms");

SEC("kprobe")
int xk_bench_kfunc(struct pt_regs *context)
{
	xk_bench_set_ax(context, 7);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
