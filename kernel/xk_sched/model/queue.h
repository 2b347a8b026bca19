/* SPDX-License-Identifier: GPL-2.0-only */
/* Queues of ready threads: queue.c. All functions need the lock of the queue's core. */
#ifndef _XK_SCHED_QUEUE_H
#define _XK_SCHED_QUEUE_H

#include "xk_sched.h"

/* The thread is in no queue, and its core is that of the queue. */
void xk_queue_add(struct xk_queue *queue, struct xk_thread *thread);

/* Takes a thread out of the queue in which it is. */
void xk_queue_remove(struct xk_thread *thread);

/* The thread after this one, or NULL. */
struct xk_thread *xk_queue_next(struct xk_queue *queue, struct xk_thread *thread);

#endif /* _XK_SCHED_QUEUE_H */
