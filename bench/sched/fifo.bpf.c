// SPDX-License-Identifier: GPL-2.0-only
/*
 * kernel/xk_sched/policies/fifo.c as an eBPF scheduler, for the benchmark of switches: one queue for
 * each CPU (`fifo`), and without a queue of its own (`local`).
 */
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))
#define __ksym __attribute__((section(".ksyms")))

#define SWITCH_PARTIAL (1ULL << 3)
#define LOCAL ((1ULL << 63) | 2)
#define SLICE_NS 20000000ULL
#define NR_CPUS 64

struct task_struct {
	unsigned int flags;
} __attribute__((preserve_access_index));

struct sched_ext_ops {
	void (*enqueue)(struct task_struct *p, __u64 enq_flags);
	void (*dispatch)(__s32 cpu, struct task_struct *prev);
	__s32 (*init)(void);
	__u64 flags;
	char name[128];
};

/* What follows `___` in the name is not looked up: `___v2` belongs to the name. */
extern _Bool scx_bpf_dsq_insert___v2___real(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags) __ksym;
extern _Bool scx_bpf_dsq_move_to_local___v2___real(__u64 dsq, __u64 flags) __ksym;
extern __s32 scx_bpf_create_dsq(__u64 dsq, __s32 node) __ksym;
extern __s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;

char LICENSE[] SEC("license") = "GPL";

SEC("struct_ops/enqueue")
int enqueue(__u64 *arguments)
{
	struct task_struct *p = (void *)arguments[0];

	scx_bpf_dsq_insert___v2___real(p, scx_bpf_task_cpu(p), SLICE_NS, arguments[1]);
	return 0;
}

SEC("struct_ops/dispatch")
int dispatch(__u64 *arguments)
{
	scx_bpf_dsq_move_to_local___v2___real((__s32)arguments[0], 0);
	return 0;
}

SEC("struct_ops.s/init")
int init(__u64 *arguments)
{
	int cpu;

	for (cpu = 0; cpu < NR_CPUS; cpu++)
		if (scx_bpf_create_dsq(cpu, -1) < 0)
			return -1;
	return 0;
}

SEC("struct_ops/enqueue_local")
int enqueue_local(__u64 *arguments)
{
	struct task_struct *p = (void *)arguments[0];

	scx_bpf_dsq_insert___v2___real(p, LOCAL, SLICE_NS, arguments[1]);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops fifo = {
	.enqueue = (void *)enqueue,
	.dispatch = (void *)dispatch,
	.init = (void *)init,
	.flags = SWITCH_PARTIAL,
	.name = "fifo",
};

SEC(".struct_ops.link")
struct sched_ext_ops local = {
	.enqueue = (void *)enqueue_local,
	.flags = SWITCH_PARTIAL,
	.name = "local",
};
