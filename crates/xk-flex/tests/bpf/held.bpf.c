// SPDX-License-Identifier: GPL-2.0-only
/* Endless loops with something held, on several hooks. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "xk_flex.bpf.h"

char _license[] SEC("license") = "GPL";

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;
extern struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
extern void bpf_cpumask_release(struct bpf_cpumask *mask) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern void bpf_preempt_disable(void) __ksym;
extern void bpf_preempt_enable(void) __ksym;
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

/* A TCP connection that user space made. */
volatile struct bpf_sock_tuple connection;
/* Runs that hold something. */
__u64 holding;
volatile __u64 never;

/* Ends when user space says so, and it never does. */
static __always_inline void forever(void)
{
	__u64 at = 0;

	__sync_fetch_and_add(&holding, 1);
	while (at != never - 1)
		at += 2;
}

static __noinline int forever_elsewhere(int depth)
{
	if (depth)
		forever();
	return depth;
}

static __always_inline struct bpf_sock *find(struct __sk_buff *skb)
{
	struct bpf_sock_tuple tuple = {
		.ipv4.saddr = connection.ipv4.saddr,
		.ipv4.daddr = connection.ipv4.daddr,
		.ipv4.sport = connection.ipv4.sport,
		.ipv4.dport = connection.ipv4.dport,
	};

	return bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
}

SEC("tc")
int holds_socket(struct __sk_buff *skb)
{
	struct bpf_sock *sk = find(skb);

	if (!sk)
		return 1;
	forever();
	bpf_sk_release(sk);
	return 2;
}

SEC("tc")
int holds_socket_over_call(struct __sk_buff *skb)
{
	struct bpf_sock *sk = find(skb);
	int found;

	if (!sk)
		return 1;
	found = forever_elsewhere(7);
	bpf_sk_release(sk);
	return found;
}

/* One socket or the other, which may not be there, and a record of the ring buffer. */
SEC("tc")
int holds_two(struct __sk_buff *skb)
{
	struct bpf_sock *sk = find(skb);
	__u64 *record;

	record = bpf_ringbuf_reserve(&ring, 8, 0);
	if (record) {
		*record = 7;
		forever();
		bpf_ringbuf_submit(record, 0);
	}
	if (sk)
		bpf_sk_release(sk);
	return 2;
}

SEC("tc")
int holds_task_in_rcu(struct __sk_buff *skb)
{
	struct task_struct *task = bpf_task_from_pid(1);

	if (!task)
		return 1;
	bpf_rcu_read_lock();
	forever();
	bpf_rcu_read_unlock();
	bpf_task_release(task);
	return 2;
}

SEC("tc")
int holds_iterator(struct __sk_buff *skb)
{
	struct bpf_iter_num it;
	int found = 0, *next;

	bpf_iter_num_new(&it, 0, 10);
	while ((next = bpf_iter_num_next(&it))) {
		forever();
		found += *next;
	}
	bpf_iter_num_destroy(&it);
	return found;
}

SEC("xdp")
int drops_packet(struct xdp_md *context)
{
	forever();
	return XDP_PASS;
}

SEC("?fentry/__x64_sys_getpgid")
int BPF_PROG(entry)
{
	struct task_struct *task = bpf_task_from_pid(1);

	struct bpf_cpumask *mask;

	if (!task)
		return 0;
	mask = bpf_cpumask_create();
	if (mask) {
		bpf_preempt_disable();
		forever();
		bpf_preempt_enable();
		bpf_cpumask_release(mask);
	}
	bpf_task_release(task);
	return 0;
}

SEC("?kprobe/__x64_sys_getpgid")
int probe(struct pt_regs *regs)
{
	forever();
	return 0;
}

SEC("?tp/syscalls/sys_enter_getpgid")
int trace(void *context)
{
	forever_elsewhere(3);
	return 0;
}
