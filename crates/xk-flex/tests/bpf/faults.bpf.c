// SPDX-License-Identifier: GPL-2.0-only
/* Runs that access the heap where no page is, and runs beside and above them that do not. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "xk_flex.bpf.h"
#include "flex/base.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(16384);

/* The object that a program accesses. */
volatile __u64 address;
__u64 turns, returned, above, waiting, cpu;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

static __always_inline __u64 __heap *object(void)
{
	XK_USE_HEAP();
	return (__u64 __heap *)address;
}

SEC("xdp")
int loads(struct xdp_md *ctx)
{
	returned = *(volatile __u64 __heap *)object() + 3;
	return 3;
}

SEC("xdp")
int stores(struct xdp_md *ctx)
{
	*(volatile __u64 __heap *)object() = 7;
	return 3;
}

static __noinline int apart(void)
{
	return *(volatile __u64 __heap *)object() != 1;
}

SEC("xdp")
int loads_in_a_function(struct xdp_md *ctx)
{
	return apart() ? 3 : 2;
}

/* Endless if what is not there reads 0: its deadline would end it. */
SEC("xdp")
int follows(struct xdp_md *ctx)
{
	__u64 *record = bpf_ringbuf_reserve(&records, 8, 0);

	if (!record)
		return 1;
	while (!*(volatile __u64 __heap *)object())
		turns++;
	bpf_ringbuf_submit(record, 0);
	return 3;
}

/* The kernel searches for a device then, and the program at that function runs. */
static __always_inline void looks_up(struct xdp_md *ctx)
{
	struct bpf_fib_lookup fib = { .family = 2, .ifindex = 1 };

	bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
}

/* Its own object is there. Another program runs above it, whose object is not. */
SEC("xdp")
int is_interrupted(struct xdp_md *ctx)
{
	__u64 __heap *own = xk_malloc(16);

	if (!own)
		return 1;
	*own = 5;
	cpu = bpf_get_smp_processor_id();
	waiting = 1;
	looks_up(ctx);
	waiting = 0;
	returned = *own;
	xk_free(own);
	return 3;
}

/* Its own object is not there. A program whose object is there runs above it. */
SEC("xdp")
int faults_and_is_interrupted(struct xdp_md *ctx)
{
	turns = *(volatile __u64 __heap *)object();
	cpu = bpf_get_smp_processor_id();
	waiting = 2;
	looks_up(ctx);
	waiting = 0;
	return 3;
}

SEC("fentry/dev_get_by_index_rcu")
int BPF_PROG(comes_between)
{
	__u64 __heap *own;

	if (!waiting || cpu != bpf_get_smp_processor_id())
		return 0;
	above++;
	if (waiting == 1) {
		above += *(volatile __u64 __heap *)object();
		return 0;
	}
	own = xk_malloc(16);
	xk_free(own);
	return 0;
}
