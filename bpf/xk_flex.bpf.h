/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For extensions (docs/flex.md): what ends a run. `xk flex` lets the loops that the verifier
 * refuses count their turns and call xk_flex_look() now and then. A run that it ends leaves with
 * the default of its hook.
 *
 * Include vmlinux.h or linux/types.h before it. One file of an object includes it.
 */
#ifndef _XK_FLEX_BPF_H
#define _XK_FLEX_BPF_H

/* Why a run ends. */
#define XK_FLEX_DEADLINE	1	/* it has taken too long */
#define XK_FLEX_TERMINATE	2	/* user space ends all runs */
#define XK_FLEX_TURNS		3	/* the kernel's limit of 8 million may_goto in a frame */
#define XK_FLEX_LOCKS		4	/* it takes more locks than a run may hold */
#define XK_FLEX_KEPT		5	/* it returned and held a lock: it ended by itself */
#define XK_FLEX_FAULT		6	/* it accessed the heap where no page is */

/* Nanoseconds between two looks: after less, the next look comes after four times as many turns. */
#define XK_FLEX_SHORT		20000

/* What user space tells all runs of the object. In a section, and so in a map, of its own. */
struct xk_flex_control {
	__u64 terminate;	/* if not 0, all runs end */
	__u64 deadline;		/* nanoseconds of a run; 0: no deadline */
	__s64 interval;		/* turns between two looks */
	__u64 zero;		/* 0, which the verifier does not know */
};

volatile struct xk_flex_control xk_flex_control __attribute__((section(".data.xk_flex"), used)) = {
	.deadline = 10000000,
	.interval = 64,
};

/* A run, in the frame of its program. */
struct xk_flex_run {
	__u64 why;		/* if not 0, it ends */
	__s64 left;		/* turns until the next look */
	__u64 last;		/* time of the last look; 0: none yet */
	__u64 spent;		/* nanoseconds that count for the deadline */
	__u64 zero;		/* that of struct xk_flex_control */
};

/* A run that was ended. */
struct xk_flex_end {
	__u64 time;		/* CLOCK_MONOTONIC */
	__u64 spent;
	__u32 site;		/* number of the look */
	__u32 why;
	__u64 fault;		/* XK_FLEX_FAULT: the address that it accessed last */
	__u64 ip;		/* and the instruction of the kernel */
};

/* Runs that were ended, for user space. */
struct {
	int (*type)[27];	/* BPF_MAP_TYPE_RINGBUF */
	int (*max_entries)[65536];
} xk_flex_ended __attribute__((section(".maps"), used));

/*
 * Runs that were ended and are not in the ring buffer, which was full. In a section, and so in a
 * map, of its own.
 */
__u64 xk_flex_unreported __attribute__((section(".data.xk_flex_unreported"), used));

static __u64 (*const xk_flex_time)(void) = (void *)5;	/* bpf_ktime_get_ns() */
/* bpf_ringbuf_output() */
static long (*const xk_flex_output)(void *map, void *data, __u64 size, __u64 flags) = (void *)130;

/*
 * Why the run ends, or 0. Time between two looks counts for at most a quarter of the deadline, so
 * that a run which was preempted, or whose virtual CPU was, does not end for that. After such a
 * pause the next turn looks, so that turns which take long are noticed.
 */
static inline __attribute__((always_inline))
__u32 xk_flex_judge(struct xk_flex_run *run, __u32 why, __u64 now)
{
	__u64 deadline = xk_flex_control.deadline;
	__u64 quarter = (deadline >> 2) + !!(deadline & 3);
	__s64 passed = 0, took = XK_FLEX_SHORT;

	if (run->last) {
		passed = now - run->last;
		took = passed;
	}
	/* Four times as many turns after a short time. The verifier would follow both ways. */
	run->left = xk_flex_control.interval << ((__u64)(took - XK_FLEX_SHORT) >> 63 << 1);
	run->last = now;
	/* The clock of programs may step back a little. */
	if (passed < 0)
		passed = 0;
	if (deadline && passed > quarter) {
		passed = quarter;
		run->left = 1;
	}
	run->spent += passed;
	if (!why && xk_flex_control.terminate)
		why = XK_FLEX_TERMINATE;
	if (!why && deadline && run->spent >= deadline)
		why = XK_FLEX_DEADLINE;
	if (why)
		run->why = why;
	return why;
}

/* Whether the run ends. Objects with a heap and with locks have looks of their own. */
static __attribute__((noinline, used))
int xk_flex_look(struct xk_flex_run *run, __u32 site, __u32 why)
{
	struct xk_flex_end end;

	end.time = xk_flex_time();
	end.why = xk_flex_judge(run, why, end.time);
	if (!end.why)
		return 0;
	end.spent = run->spent;
	end.site = site;
	end.fault = 0;
	end.ip = 0;
	if (xk_flex_output(&xk_flex_ended, &end, sizeof(end), 0))
		__sync_fetch_and_add(&xk_flex_unreported, 1);
	return 1;
}

#endif
