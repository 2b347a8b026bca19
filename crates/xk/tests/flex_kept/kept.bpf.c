// SPDX-License-Identifier: GPL-2.0-only
/* Takes memory, or does not end, as the argument of a system call says. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "xk_flex.bpf.h"
#include "xk_heap.bpf.h"

char _license[] SEC("license") = "GPL";

/* Of getpgid(). */
#define ENDLESS 1000000
#define TAKE 1000001

XK_HEAP(8192);

volatile __u64 turns;

SEC("fentry/__x64_sys_getpgid")
int BPF_PROG(on_getpgid, struct pt_regs *regs)
{
	__u64 pid = BPF_CORE_READ(regs, di);

	XK_USE_HEAP();
	if (pid == TAKE)
		xk_malloc(60000);
	while (pid == ENDLESS && turns != ~0ULL)
		turns++;
	return 0;
}
