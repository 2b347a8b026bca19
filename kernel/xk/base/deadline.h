/* SPDX-License-Identifier: GPL-2.0-only */
/* Deadlines: what ends by itself at some time, even if no process is left; deadline.c. */
#ifndef _XK_DEADLINE_H
#define _XK_DEADLINE_H

#include <linux/list.h>
#include <linux/types.h>

struct xk_deadline {
	struct list_head list;		/* of those that are set */
	u64 end;			/* boot time in ns; 0: none */
	void (*passed)(struct xk_deadline *deadline);	/* under xk_lock; may free its owner */
};

/* `unlock` releases xk_lock after deadlines have passed. */
void xk_deadlines_init(void (*unlock)(void));

/* No deadline is set any more. Sleeps, without xk_lock. */
void xk_deadlines_exit(void);

/* The functions below are called under xk_lock. */

void xk_deadline_init(struct xk_deadline *deadline, void (*passed)(struct xk_deadline *deadline));

/* Sets it to `ns` nanoseconds from now; 0 removes it. Returns 0, or -EINVAL if that is too long. */
int xk_deadline_set(struct xk_deadline *deadline, u64 ns);

/* Nanoseconds that are left; never 0 if it is set, because 0 means none. */
u64 xk_deadline_left(const struct xk_deadline *deadline);

#endif /* _XK_DEADLINE_H */
