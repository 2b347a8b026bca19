/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/* The interface of /dev/xk_sched. */
#ifndef _UAPI_XK_SCHED_H
#define _UAPI_XK_SCHED_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define XK_SCHED_ABI_VERSION 1
#define XK_SCHED_NAME_LEN 32
#define XK_SCHED_TEXT_LEN 256

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
	char name[XK_SCHED_NAME_LEN];
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

/*
 * CHOOSE returns -EACCES with a reason unless the descriptor is open for writing, the caller has
 * CAP_SYS_ADMIN during the call, and the kernel is not locked down: see docs/privilege.md.
 * -ENOENT: no such policy. -ESRCH: no such thread. -ENODEV: the policy is ejected, or the module
 * is not active.
 */
#define XK_SCHED_IOC_MAGIC 0xb7
#define XK_IOC_SCHED_VERSION _IOR(XK_SCHED_IOC_MAGIC, 80, struct xk_sched_version)
#define XK_IOC_SCHED_STATUS _IOR(XK_SCHED_IOC_MAGIC, 81, struct xk_sched_status)
#define XK_IOC_SCHED_POLICY _IOWR(XK_SCHED_IOC_MAGIC, 82, struct xk_sched_policy_info)
#define XK_IOC_SCHED_REPORT _IOWR(XK_SCHED_IOC_MAGIC, 83, struct xk_sched_report)
#define XK_IOC_SCHED_CHOOSE _IOWR(XK_SCHED_IOC_MAGIC, 84, struct xk_sched_choice)

#endif /* _UAPI_XK_SCHED_H */
