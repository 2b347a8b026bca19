/* SPDX-License-Identifier: GPL-2.0-only */
/* What a policy can see of a task in a recording: a policy that uses more does not compile. */
#ifndef _XK_USER_TASK_H
#define _XK_USER_TASK_H

struct task_struct {
	pid_t pid;
	char comm[16];
	struct {
		u64 sum_exec_runtime;
	} se;
	struct {
		u32 weight;
		/* For class/ only. */
		u64 dsq_vtime;
		u64 slice;
	} scx;
	const struct cpumask *cpus_ptr;
	unsigned short migration_disabled;
	/* For class/ only. */
	unsigned int __state;
	int core;
	struct cpumask cpus_mask;	/* to which cpus_ptr points */
};

#define TASK_DEAD 0x80
#define SCX_SLICE_DFL (20 * NSEC_PER_MSEC)
#define task_cpu(task) ((task)->core)

#endif /* _XK_USER_TASK_H */
