// SPDX-License-Identifier: GPL-2.0-only
/* The data structures of bpf/flex in an extension: executes an operation, and adds the time that it took. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "xk_flex.bpf.h"
#include "../../bench/flex/operations.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(16384);

struct xk_bench bench;
/* What user space asks for, the number of the turn, and the time of all turns, in nanoseconds. */
volatile struct {
	__u64 operation;
	__u64 turn;
	__u64 time;
} asked;

/* One turn. Returns 0 if it was ended, or there was no memory. */
SEC("tc")
int measure(struct __sk_buff *skb)
{
	__u64 turn = asked.turn, start;

	XK_USE_HEAP();
	if (!bench.list && !xk_bench_begin(&bench))
		return 0;
	start = bpf_ktime_get_ns();
	xk_bench_turn(&bench, asked.operation, turn);
	asked.time += bpf_ktime_get_ns() - start;
	asked.turn = turn + 1;
	return 1;
}
