/* SPDX-License-Identifier: GPL-2.0-only */
/* Violations of a policy: report.c. */
#ifndef _XK_SCHED_REPORT_H
#define _XK_SCHED_REPORT_H

#include "event/context.h"
#include "uapi/xk_sched.h"

/* What a violation was about. */
struct xk_fault {
	struct xk_sched_policy *policy;
	enum xk_event event;
	const struct xk_thread *thread;	/* NULL: none */
	int core;			/* -1: none */
	enum xk_state from;
	enum xk_state to;
};

/*
 * Ejects the policy: from now on none of its events is called, and its threads go to the fair class
 * soon. Only the first violation of a policy is reported. Any context except NMI; takes no lock but
 * its own.
 */
__printf(2, 3) void xk_report(const struct xk_fault *fault, const char *format, ...);

/* The report with this index; 0 is the newest. */
int xk_report_read(unsigned int index, struct xk_sched_report *report);

/* How many policies were ejected. */
u64 xk_reports(void);

#endif /* _XK_SCHED_REPORT_H */
