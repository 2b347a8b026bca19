/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/* The interface of /dev/xk_sched. */
#ifndef _UAPI_XK_SCHED_H
#define _UAPI_XK_SCHED_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define XK_SCHED_ABI_VERSION 4
#define XK_SCHED_NAME_LEN 32
#define XK_SCHED_TEXT_LEN 256
#define XK_SCHED_CPUS_LEN 128
#define XK_SCHED_NR_WAITS 40

struct xk_sched_version {
	__u32 abi;
	__u32 pad;
	char module[XK_SCHED_NAME_LEN];
};

/* Whether sched_ext calls the module. */
struct xk_sched_status {
	__u32 active;		/* 0: ended, for the reason `reason` */
	__u32 nr_policies;
	__u32 nr_threads;	/* that chose a policy and run in it */
	__u32 pad;
	__u64 nr_ejected;	/* policies, since the module was loaded */
	char reason[XK_SCHED_TEXT_LEN];
};

/* A policy that was ejected stays in the list until its module is removed. */
struct xk_sched_policy_info {
	__u32 index;		/* in: 0, 1, ..; -ENOENT after the last one */
	__u32 live;		/* out, like all that follows */
	__u32 nr_threads;
	__u32 nr_ready;		/* in queues */
	__u64 nr_switches;	/* threads that it chose to run */
	__u64 nr_overdue;	/* threads that waited too long and went to the fair class */
	__u64 slice_ns;
	__u32 weight;
	__u32 stranded;		/* 1: none of its CPUs is online, so it has all */
	char name[XK_SCHED_NAME_LEN];
	char cpus[XK_SCHED_CPUS_LEN];	/* a list, as for cpusets; "all" */
};

/*
 * What a policy did while at least one descriptor had asked for it. This one asks from its first
 * request until it is closed.
 */
struct xk_sched_stats {
	__u32 index;		/* in: as in struct xk_sched_policy_info */
	__u32 pad;
	__u64 nr_moves;		/* out, like the rest: chosen for another core than before */
	__u64 waited_ns;	/* from READY to RUNNING, of all threads */
	__u64 waits[XK_SCHED_NR_WAITS];	/* how often: 0, 1, 2 to 3, 4 to 7 ns, .. */
	char name[XK_SCHED_NAME_LEN];
};

/* A thread of a policy, at some time while it was looked at. */
struct xk_sched_thread {
	__s32 pid;
	__s32 core;
	__u32 queue;		/* 0: none; others count from 1, in the order of initialisation */
	__u32 waits_ms;		/* 0 unless it is ready */
	__u64 ran_ns;
	char state[16];
	char comm[16];
};

struct xk_sched_dump {
	__u32 size;		/* in: size of this structure */
	__u32 nr_threads;	/* in: places in `threads`; out: how many threads there are */
	__u64 threads;		/* in: address of an array of struct xk_sched_thread */
	char policy[XK_SCHED_NAME_LEN];	/* in */
	char error[XK_SCHED_TEXT_LEN];	/* out */
};

/* Why a policy was ejected. */
struct xk_sched_report {
	__u32 index;		/* in: 0 is the newest; -ENOENT after the last one */
	__s32 pid;		/* out, like all that follows; 0: no thread is to blame */
	__s32 core;		/* -1: none */
	__u32 pad;
	char policy[XK_SCHED_NAME_LEN];
	char event[XK_SCHED_NAME_LEN];
	char comm[16];
	char from[16];		/* state before the event */
	char to[16];		/* state that was asked for, or after the event */
	char text[XK_SCHED_TEXT_LEN];
};

#define XK_SCHED_WHOLE_PROCESS 1	/* all threads of the process, not only this one */

/* Gives threads to a policy. Their children inherit it. */
struct xk_sched_choice {
	__u32 size;		/* in: size of this structure */
	__s32 pid;		/* in: 0 is the caller */
	__u32 flags;		/* in: XK_SCHED_WHOLE_PROCESS */
	__u32 nr_threads;	/* out: how many were given */
	char policy[XK_SCHED_NAME_LEN];	/* in; "": the fair class */
	char error[XK_SCHED_TEXT_LEN];	/* out */
};

/* Changes the share that a policy gets of cores where others have threads, too. */
struct xk_sched_weight {
	__u32 size;		/* in: size of this structure */
	__u32 weight;		/* in: 1 to 10000 */
	char policy[XK_SCHED_NAME_LEN];	/* in */
	char error[XK_SCHED_TEXT_LEN];	/* out */
};

/* Sets the CPUs on which threads of a policy run. */
struct xk_sched_cpus {
	__u32 size;		/* in: size of this structure */
	__u32 pad;
	char policy[XK_SCHED_NAME_LEN];	/* in */
	char cpus[XK_SCHED_CPUS_LEN];	/* in: a list, for example "0-3,8"; "all" */
	char error[XK_SCHED_TEXT_LEN];	/* out */
};

/* Gives all threads of a policy to another that can take them over. Their class does not change. */
struct xk_sched_replacement {
	__u32 size;		/* in: size of this structure */
	__u32 nr_threads;	/* out: how many were given */
	char old[XK_SCHED_NAME_LEN];	/* in */
	char new[XK_SCHED_NAME_LEN];	/* in */
	char error[XK_SCHED_TEXT_LEN];	/* out */
};

/* Begins or ends the recording of this descriptor, which read() returns after its end. */
struct xk_sched_recording {
	__u32 size;		/* in: size of this structure */
	__u32 pad;
	__u64 limit;		/* RECORD; in: bytes of memory; more is not recorded */
	__u64 bytes;		/* RECORD_END; out: what read() will return */
	__u64 missed;		/* RECORD_END; out: records that had no place */
	char policy[XK_SCHED_NAME_LEN];	/* RECORD; in; no thread has been in it yet */
	char error[XK_SCHED_TEXT_LEN];	/* out */
};

/*
 * A recording: this head, then records, in the order in which things happened. An event begins with
 * a record that says what the policy could see. Records of what it did and asked for follow, then
 * one of its end.
 */
struct xk_sched_recording_head {
	char magic[8];
	__u32 record_size;	/* size of struct xk_sched_record */
	__u32 nr_cores;
	__u64 possible;		/* cores; bits, as below */
	__u64 online;
	char policy[XK_SCHED_NAME_LEN];
	char release[64];	/* of the kernel */
};

#define XK_SCHED_RECORDING_MAGIC "xksched1"
#define XK_SCHED_RECORDING_CORES 64	/* machines with more cannot be recorded */
#define XK_SCHED_RECORDING_LIMIT 0x40000000ull

/* Kinds of records. Smaller ones are events: event/context.h. */
enum xk_sched_record_kind {
	XK_RECORD_END = 32,	/* of an event: `answer`, `state` */
	XK_RECORD_CHANGE,	/* in an event: a change of a state; `answer` is 0 unless refused */
	XK_RECORD_STEAL,	/* ..: of `thread` (0: none) from `queue` of another core */
	XK_RECORD_IDLE_CORE,	/* ..: `answer` is idle, or as good as another */
	XK_RECORD_PREEMPT,	/* ..: of `core` */
	XK_RECORD_JOIN,		/* a thread came to the policy; number `answer`, name `comm` */
	XK_RECORD_LEAVE,	/* it has left */
	XK_RECORD_OUST,		/* the kernel took it out of its queue */
	XK_RECORD_CPUS,		/* `allowed` are the CPUs of the policy; `answer`: not all */
};

struct xk_sched_record {
	__u8 kind;
	__u8 state;		/* of the thread; CHANGE: that was asked for */
	__u16 migration_disabled;
	__s32 core;
	__u32 thread;		/* 0: none; others count from 1 */
	__s32 answer;		/* `yield`: why the thread stops */
	__u32 queue;		/* 0: none; others count from 1, in the order of initialisation */
	__u32 weight;
	union {
		struct {
			__u64 ran;	/* ns that the thread has run */
			__u64 allowed;	/* cores on which it may run */
			__u64 online;
		};
		char comm[16];
	};
};

/*
 * CHOOSE, WEIGHT, CPUS, REPLACE and RECORD return -EACCES with a reason unless the descriptor is
 * open for writing, the caller has CAP_SYS_ADMIN during the call, and the kernel is not locked
 * down: see docs/privilege.md. -ENOENT: no such policy. -ESRCH: no such thread. -ENODEV: the policy
 * is ejected, or the module is not active.
 */
#define XK_SCHED_IOC_MAGIC 0xb7
#define XK_IOC_SCHED_VERSION _IOR(XK_SCHED_IOC_MAGIC, 80, struct xk_sched_version)
#define XK_IOC_SCHED_STATUS _IOR(XK_SCHED_IOC_MAGIC, 81, struct xk_sched_status)
#define XK_IOC_SCHED_POLICY _IOWR(XK_SCHED_IOC_MAGIC, 82, struct xk_sched_policy_info)
#define XK_IOC_SCHED_REPORT _IOWR(XK_SCHED_IOC_MAGIC, 83, struct xk_sched_report)
#define XK_IOC_SCHED_CHOOSE _IOWR(XK_SCHED_IOC_MAGIC, 84, struct xk_sched_choice)
#define XK_IOC_SCHED_WEIGHT _IOWR(XK_SCHED_IOC_MAGIC, 85, struct xk_sched_weight)
#define XK_IOC_SCHED_RECORD _IOWR(XK_SCHED_IOC_MAGIC, 86, struct xk_sched_recording)
#define XK_IOC_SCHED_RECORD_END \
	_IOWR(XK_SCHED_IOC_MAGIC, 87, struct xk_sched_recording)
#define XK_IOC_SCHED_REPLACE _IOWR(XK_SCHED_IOC_MAGIC, 88, struct xk_sched_replacement)
#define XK_IOC_SCHED_CPUS _IOWR(XK_SCHED_IOC_MAGIC, 89, struct xk_sched_cpus)
#define XK_IOC_SCHED_STATS _IOWR(XK_SCHED_IOC_MAGIC, 90, struct xk_sched_stats)
#define XK_IOC_SCHED_DUMP _IOWR(XK_SCHED_IOC_MAGIC, 91, struct xk_sched_dump)

#endif /* _UAPI_XK_SCHED_H */
