// SPDX-License-Identifier: GPL-2.0-only
/* The data structures of bpf/flex in an extension, used as user space says. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "xk_flex.bpf.h"
#include "../../../../bench/flex/structures.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(16384);

struct xk_structures structures;

/* In the heap, so that user space reads and writes it without a system call. */
struct exchange {
	struct xk_structures_asked asked;
	__u64 answer;
};

struct exchange __heap *volatile exchange;

/* Returns 1 and twice whether it succeeded. A run that is ended returns 0. */
SEC("tc")
int operate(struct __sk_buff *skb)
{
	struct exchange __heap *now = exchange;
	int done;

	XK_USE_HEAP();
	done = xk_structures_turn(&structures, now->asked.operation, now->asked.key, now->asked.value);
	now->answer = structures.answer;
	return done ? 3 : 1;
}
