/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For extensions (docs/flex.md): what ends a run that accesses the heap where no page is. The
 * kernel lets such a load read 0, and leaves such a store out. xk_heap.bpf.h includes this file if
 * xk_flex.bpf.h was included before.
 *
 * A program at the kernel's tracepoint of page faults counts those in the heap, for each CPU.
 * `xk flex` puts a struct xk_heap_run into the frame of each other program: it keeps the count of
 * the CPU at which the run began. The looks compare it, and so do the ends of programs. The CPU's
 * count is set back then, so that a run that was interrupted by this one is not ended for it.
 */
#ifndef _XK_FAULT_BPF_H
#define _XK_FAULT_BPF_H

struct xk_heap_run {
	struct xk_flex_run run;
	__u64 faults;
};

/* What the tracepoint and the map of the heap say, as far as it is needed. */
struct vm_struct___xk {
	void *addr;
} __attribute__((preserve_access_index));

struct bpf_arena___xk {
	struct vm_struct___xk *kern_vm;
} __attribute__((preserve_access_index));

struct pt_regs___xk {
	unsigned long ip;
} __attribute__((preserve_access_index));

/* The kernel's addresses of the heap: 4 GiB, and half of this before and after it. */
#define XK_HEAP_GUARD		65536ull

/* args: address, registers, error code */
xk_heap_inline int xk_heap_note_fault(__u64 *args)
{
	struct bpf_arena___xk *arena = (void *)&xk_heap;
	__u64 offset = args[0] - (__u64)arena->kern_vm->addr;
	struct pt_regs___xk *regs = (void *)args[1];
	struct xk_heap_cpu __heap *cpu;

	if (offset >= (1ull << 32) + XK_HEAP_GUARD)
		return 0;
	cpu = xk_heap_cpu();
	cpu->fault = XK_HEAP_ADDRESS + offset - XK_HEAP_GUARD / 2;
	cpu->ip = regs->ip;
	cpu->faults++;
	return 0;
}

/* At the beginning of a program. */
xk_heap_inline int xk_heap_note_begin(struct xk_heap_run *run)
{
	run->faults = xk_heap_cpu()->faults;
	return 0;
}

/* Not 0 if it has accessed what is not there. */
xk_heap_inline __u64 xk_heap_faulted(struct xk_heap_run *run)
{
	return xk_heap_cpu()->faults - run->faults;
}

/*
 * Why the run ends, or 0. The verifier follows this for each look and each way that leads there, so
 * that there is one branch in all, and that is at the end.
 */
xk_heap_inline __u32 xk_heap_why(struct xk_heap_run *run, __u32 why)
{
	__u64 faulted = xk_heap_faulted(run);

	why = xk_flex_judge(&run->run, why, xk_flex_time());
	if (!(why | faulted))
		return 0;
	if (faulted) {
		why = XK_FLEX_FAULT;
		run->run.why = why;
	}
	return why;
}

/* For the report of a run that ends: its last fault, if that is why. */
xk_heap_inline void xk_heap_describe(struct xk_heap_run *run, struct xk_flex_end *end)
{
	struct xk_heap_cpu __heap *cpu = xk_heap_cpu();

	end->fault = 0;
	end->ip = 0;
	if (end->why == XK_FLEX_FAULT) {
		end->fault = cpu->fault;
		end->ip = cpu->ip;
	}
	cpu->faults = run->faults;
}

/* Whether the run ends: xk_flex_look() for objects with a heap. */
xk_heap_inline int xk_heap_judge(struct xk_heap_run *run, __u32 site, __u32 why)
{
	struct xk_flex_end end;

	end.why = xk_heap_why(run, why);
	if (!end.why)
		return 0;
	end.time = run->run.last;
	end.spent = run->run.spent;
	end.site = site;
	xk_heap_describe(run, &end);
	if (xk_flex_output(&xk_flex_ended, &end, sizeof(end), 0))
		__sync_fetch_and_add(&xk_flex_unreported, 1);
	return 1;
}

#define xk_heap_called static __attribute__((__noinline__, __used__))

/*
 * Part of XK_HEAP(). xk_heap_begin() is called at the beginning of a program, and xk_heap_left() at
 * its end: 1 if it has accessed what is not there.
 */
#define XK_HEAP_FAULTS							\
__attribute__((section("tp_btf/page_fault_kernel"), used))		\
int xk_heap_fault(__u64 *args)						\
{									\
	return xk_heap_note_fault(args);				\
}									\
xk_heap_called int xk_heap_begin(struct xk_heap_run *run)		\
{									\
	return xk_heap_note_begin(run);					\
}									\
xk_heap_called int xk_heap_look(struct xk_heap_run *run, __u32 site, __u32 why)	\
{									\
	return xk_heap_judge(run, site, why);				\
}									\
xk_heap_called int xk_heap_left(struct xk_heap_run *run, __u32 site)	\
{									\
	return xk_heap_faulted(run) && xk_heap_judge(run, site, XK_FLEX_FAULT); \
}

#endif
