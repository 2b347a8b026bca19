/* SPDX-License-Identifier: GPL-2.0-only */
/* Events that take too long: watch.c. */
#ifndef _XK_SCHED_WATCH_H
#define _XK_SCHED_WATCH_H

struct xk_error;

/* May sleep. */
int xk_watch_init(struct xk_error *error);
void xk_watch_exit(void);

/* A policy comes, or has gone. Interrupts are on. */
void xk_watch_start(void);
void xk_watch_stop(void);

/*
 * Instead of the timers, while they are silent: called again and again, with interrupts off, until
 * the other CPU has no more events.
 */
void xk_watch_look_at(int cpu);

/* How long the event of this CPU may take, in ms. Preemption is off. */
unsigned int xk_watch_budget(void);

#endif /* _XK_SCHED_WATCH_H */
