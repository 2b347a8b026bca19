/* SPDX-License-Identifier: GPL-2.0-only */
/* The made-up machine, machine.c, and what must always be true of it, fuzz.c. */
#ifndef _XK_USER_MACHINE_H
#define _XK_USER_MACHINE_H

#include "user.h"

#define XK_MAX_ACTORS 24

/* A thread, as the kernel sees it. */
struct xk_actor {
	struct xk_thread thread;
	struct task_struct task;
	enum {
		XK_ABSENT,
		XK_SLEEPS,
		XK_QUEUED,	/* in a queue of the policy, or of sched_ext (`local`) */
		XK_RUNS,
	} where;
	bool local;
	bool owed;	/* has to run before the machine is drained */
};

extern struct xk_actor xk_actors[XK_MAX_ACTORS];
extern unsigned int xk_nr_actors;
extern u64 xk_nr_switches;

u64 xk_random(u64 below);

void xk_machine_start(u64 seed);
/* Something happens. */
void xk_machine_step(void);
/* What runs on the core sleeps, and another thread runs, if there is one. */
void xk_machine_block(int core);
/* Cores that were interrupted choose again. */
void xk_machine_reschedule(void);

/* In fuzz.c: a record is made; what must never be true is. */
void xk_machine_put(const struct xk_sched_record *record);
__printf(1, 2) __noreturn void xk_violation(const char *format, ...);

#endif /* _XK_USER_MACHINE_H */
