/* SPDX-License-Identifier: GPL-2.0-only */
/* Parts of the program that runs a policy in user space. */
#ifndef _XK_USER_H
#define _XK_USER_H

#include "xk_sched.h"
#include "uapi/xk_sched.h"

/* The policy of this program, after it was registered on a machine of these cores. */
extern struct xk_sched_policy *xk_user_policy;
void xk_user_start(unsigned int nr_cores, u64 possible, u64 online);

/* How the kernel around the policy behaves: replay.c or machine.c. */
struct xk_user_world {
	/* A record is made. */
	void (*put)(const struct xk_sched_record *record);
	/* Whether the lock of another core is free. */
	bool (*trylock)(void);
	/* An idle core for the task, of these. */
	int (*select)(struct task_struct *task, int core, const struct cpumask *cpus);
	void (*kick)(int core, bool preempt);
	/* The task is given to sched_ext. */
	void (*run)(struct task_struct *task, u64 slice);
	/* What runs on this core is placed again. */
	void (*displace)(void);
};

extern const struct xk_user_world *xk_user_world;

/* Reads a recording; ends the program if it is none. */
const struct xk_sched_recording_head *xk_user_load(const char *path, size_t *nr,
						   const struct xk_sched_record **records);
/* A line about a record. */
void xk_user_print(FILE *file, const struct xk_sched_record *record);

/* Why the policy was ejected: a line. */
void xk_user_print_report(FILE *file);

/* What the program does; the result is its exit code: 0, or 1 if the policy is wrong. */
int xk_user_replay(const char *path);

struct xk_user_fuzz {
	u64 seed;
	u64 steps;
	const char *record;	/* file for a recording, or NULL */
};

int xk_user_fuzz(const struct xk_user_fuzz *options);

#endif /* _XK_USER_H */
