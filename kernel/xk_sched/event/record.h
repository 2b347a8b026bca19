/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What of a policy's events is recorded: record.c. Where the records go: recording.c, and for
 * programs in user space user/.
 *
 * Events of the recorded policy, and what the kernel does with its threads, happen one after the
 * other: so the recording has an order, and contains all that the policy can see.
 */
#ifndef _XK_SCHED_RECORD_H
#define _XK_SCHED_RECORD_H

#include "event/context.h"
#include "uapi/xk_sched.h"

/* NULL: none. It may change until the lock is held. */
extern struct xk_sched_policy *xk_recorded;

/* In run(), around the event. The second is called if the first has set context->recording. */
void xk_record_begin(struct xk_context *context, int why);
void xk_record_end(struct xk_context *context, int answer);

/* In an event that is recorded. */
void xk_record_change(struct xk_context *context, const struct xk_thread *thread,
		      enum xk_state state, int core, const struct xk_queue *queue, int answer);
void xk_record_steal(struct xk_context *context, const struct xk_queue *from,
		     const struct xk_thread *thread);
void xk_record_idle_core(struct xk_context *context, int answer);
void xk_record_preempt(struct xk_context *context, int core);

/* Outside of events, of a thread of the recorded policy. The first takes it out of its queue. */
void xk_record_oust(struct xk_thread *thread);
void xk_record_join(const struct xk_thread *thread);
void xk_record_leave(const struct xk_thread *thread);

/*
 * Changes the CPUs of a policy, which it can see. Interrupts are off. Before the next change, all
 * callbacks that run now have to end.
 */
void xk_record_cpus(struct xk_sched_policy *policy, const struct cpumask *cpus, bool confined);

/* Where the records go: the lock is taken if and only if the policy is still recorded. */
bool xk_record_lock(const struct xk_sched_policy *policy);
void xk_record_unlock(void);
void xk_record_put(const struct xk_sched_record *record);

#endif /* _XK_SCHED_RECORD_H */
