// SPDX-License-Identifier: GPL-2.0-only
/* The programs of heap.bpf.c with a heap in debug mode, and one that writes where it is told. */
#define XK_HEAP_DEBUG
#include "heap.bpf.c"

SEC("tc")
int writes(struct __sk_buff *skb)
{
	XK_USE_HEAP();
	*(volatile __u8 __heap *)asked.key = asked.value;
	return 3;
}
