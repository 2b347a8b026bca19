/* SPDX-License-Identifier: GPL-2.0-only */
/* How long the machine was stopped, and how long it may be: stop_budget.c. All under xk_lock. */
#ifndef _XK_STOPS_H
#define _XK_STOPS_H

#include <linux/types.h>

struct xk_stop_info;

/* Of somebody who waits, and stops the machine again and again; 0 at first. */
struct xk_stop_budget {
	unsigned int spent;	/* stops */
	u64 next;		/* when there may be another one, in ns of ktime */
};

/* The machine was stopped for so many nanoseconds; `budget` may be NULL. */
void xk_stop_budget_add(struct xk_stop_budget *budget, u64 ns);

/* In a stop: a stack is read. How long a stop takes depends on how many are. */
void xk_stop_budget_read_stack(void);

/* Another stop is within the budget. */
bool xk_stop_budget_affords(const struct xk_stop_budget *budget);

void xk_stop_budget_describe(struct xk_stop_info *info);
void xk_stop_budget_init(void);

#endif /* _XK_STOPS_H */
