/* SPDX-License-Identifier: GPL-2.0-only */
/* Events that are left before they return: escape.c, run.S. */
#ifndef _XK_SCHED_ESCAPE_H
#define _XK_SCHED_ESCAPE_H

#include <linux/sched.h>

#include "event/context.h"

#ifndef CONFIG_PREEMPT_COUNT
#error "without CONFIG_PREEMPT_COUNT, it is not known whether an event holds a lock"
#endif

struct pt_regs;
struct xk_error;

/* Calls an event with these arguments. If it is left, the result is 0, and `left` is set. */
unsigned long xk_event_run(unsigned long first, unsigned long second, unsigned long third,
			   unsigned long fourth, void *event, struct xk_context *context);

/* Where xk_event_run() goes on after an event, and an instruction that returns: run.S. */
extern const char xk_event_returned[];
extern const char xk_return[];

/* Ejects the policy whose event was left. After xk_event_run() on this CPU. */
void xk_escape_report(struct xk_context *context);

/*
 * Where this CPU was interrupted in an event: makes it go on where the event returns. False if the
 * event cannot be left there. In an exception or NMI.
 */
bool xk_escape(struct pt_regs *regs, enum xk_escape why);

/* Begin and end to leave events that cause exceptions. May sleep. */
int xk_escape_init(struct xk_error *error);
void xk_escape_exit(void);

static inline int xk_rcu_nesting(void)
{
#ifdef CONFIG_PREEMPT_RCU
	return current->rcu_read_lock_nesting;
#else
	return 0;	/* it is counted with preempt_count() */
#endif
}

#endif /* _XK_SCHED_ESCAPE_H */
