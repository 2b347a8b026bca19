// SPDX-License-Identifier: GPL-2.0-only
/* Violations of a policy. User space can read the last reports, also when the policy is gone. */
#include <linux/irq_work.h>
#include <linux/sprintf.h>
#include <linux/stdarg.h>
#include <linux/string.h>

#include "event/report.h"
#include "model/state.h"

#define NR_REPORTS 64

static struct xk_sched_report reports[NR_REPORTS];
static u64 nr_reports;
static DEFINE_RAW_SPINLOCK(reports_lock);

static const char *const names[XK_NR_EVENTS] = {
	[XK_NO_EVENT] = "no event",
	[XK_NEW_PREPARE] = "new_prepare",
	[XK_NEW_PLACE] = "new_place",
	[XK_NEW_END] = "new_end",
	[XK_UNBLOCK_PREPARE] = "unblock_prepare",
	[XK_UNBLOCK_PLACE] = "unblock_place",
	[XK_UNBLOCK_END] = "unblock_end",
	[XK_TICK] = "tick",
	[XK_YIELD] = "yield",
	[XK_BLOCK] = "block",
	[XK_TERMINATE] = "terminate",
	[XK_SCHEDULE] = "schedule",
	[XK_NEWLY_IDLE] = "newly_idle",
	[XK_ADOPT] = "adopt",
	[XK_QUEUE_AGAIN] = "tick",
};

const char *xk_event_name(enum xk_event event)
{
	return event < XK_NR_EVENTS ? names[event] : "invalid";
}

void xk_report(const struct xk_fault *fault, const char *format, ...)
{
	struct xk_sched_policy *policy = fault->policy;
	struct xk_sched_report *report;
	unsigned long flags;
	va_list args;

	raw_spin_lock_irqsave(&reports_lock, flags);
	if (!policy->live)
		goto unlock;
	WRITE_ONCE(policy->live, false);
	report = &reports[nr_reports++ % NR_REPORTS];
	memset(report, 0, sizeof(*report));
	report->core = fault->core;
	strscpy(report->policy, policy->name);
	strscpy(report->event, xk_event_name(fault->event));
	if (fault->thread) {
		report->pid = fault->thread->task->pid;
		strscpy(report->comm, fault->thread->task->comm);
		strscpy(report->from, xk_state_name(fault->from));
		strscpy(report->to, xk_state_name(fault->to));
	}
	va_start(args, format);
	vsnprintf(report->text, sizeof(report->text), format, args);
	va_end(args);
	/* A run queue lock may be held, so nothing can be woken here. */
	irq_work_queue(&policy->ejecting);
unlock:
	raw_spin_unlock_irqrestore(&reports_lock, flags);
}

int xk_report_read(unsigned int index, struct xk_sched_report *report)
{
	unsigned long flags;
	int ret = -ENOENT;

	raw_spin_lock_irqsave(&reports_lock, flags);
	if (index < min_t(u64, nr_reports, NR_REPORTS)) {
		*report = reports[(nr_reports - 1 - index) % NR_REPORTS];
		report->index = index;
		ret = 0;
	}
	raw_spin_unlock_irqrestore(&reports_lock, flags);
	return ret;
}

u64 xk_reports(void)
{
	return READ_ONCE(nr_reports);
}
