/* SPDX-License-Identifier: GPL-2.0-only */
/* Statistics of stops, and the limit of their share of time: stop_budget.c. Under xk_lock. */
#ifndef _XK_STOPS_H
#define _XK_STOPS_H

#include <linux/types.h>

struct xk_stop_info;

/* The budget of a caller that stops the machine repeatedly. Zeroed at first. */
struct xk_stop_budget {
	unsigned int spent;	/* number of stops */
	u64 next;		/* earliest time of the next stop, in ns of ktime */
};

/* Adds a stop of `ns` nanoseconds to the statistics, and to `budget` unless it is NULL. */
void xk_stop_budget_add(struct xk_stop_budget *budget, u64 ns);

/* In a stop: counts a stack that is read. Their number determines the duration of the stop. */
void xk_stop_budget_read_stack(void);

/* Whether the budget allows a stop now. */
bool xk_stop_budget_affords(const struct xk_stop_budget *budget);

/* Fills `info` with the statistics. */
void xk_stop_budget_describe(struct xk_stop_info *info);

/* Starts the statistics, when xk.ko is loaded. Without xk_lock. */
void xk_stop_budget_init(void);

#endif /* _XK_STOPS_H */
