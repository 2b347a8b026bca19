/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads that wait too long: starved.c. */
#ifndef _XK_SCHED_STARVED_H
#define _XK_SCHED_STARVED_H

void xk_starved_init(void);
void xk_starved_exit(void);

#endif /* _XK_SCHED_STARVED_H */
