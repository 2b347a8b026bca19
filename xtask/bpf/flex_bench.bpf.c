// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data structures of bpf/flex in an extension. Each operation is a program, which executes it, and adds the time that
 * it took.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "xk_flex.bpf.h"
#include "../../bench/flex/operations.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(16384);

struct xk_bench bench;
/* The number of the turn, and the time of all turns, in nanoseconds. */
volatile struct {
	__u64 turn;
	__u64 time;
} asked;

/* Returns 0 without memory. */
SEC("tc")
int begin(struct __sk_buff *skb)
{
	XK_USE_HEAP();
	return xk_bench_begin(&bench);
}

/* One turn. Returns 0 if it was ended. */
#define MEASURE(name, structure, operation, turns)		\
	SEC("tc")						\
	int structure##_##operation(struct __sk_buff *skb)	\
	{							\
		__u64 turn = asked.turn, start;			\
								\
		XK_USE_HEAP();					\
		start = bpf_ktime_get_ns();			\
		xk_bench_turn(&bench, XK_BENCH_##name, turn);	\
		asked.time += bpf_ktime_get_ns() - start;	\
		asked.turn = turn + 1;				\
		return 1;					\
	}

XK_BENCH_EACH(MEASURE)
