// SPDX-License-Identifier: GPL-2.0-only
/* A kprobe program that does nothing: the floor of every tool built on them. */
#define SEC(name) __attribute__((section(name), used))

struct pt_regs;

SEC("kprobe")
int xk_bench_empty(struct pt_regs *context)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
