/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls of events, with the checks of their effects: call.c. Interrupts are off in all of them. A
 * policy that was ejected, also by the call itself, is not called: the result is false, and the
 * thread is in no queue.
 */
#ifndef _XK_SCHED_CALL_H
#define _XK_SCHED_CALL_H

#include "event/context.h"

/* With the thread's pi_lock: the core on which the thread shall be placed, or `core`. */
int xk_call_prepare(struct xk_thread *thread, int core);

/*
 * With the run queue lock of `core`. The thread becomes ready: it is new, woken, or it stops. If
 * its policy does not have this core, it is placed on another. `next` is set if the policy has
 * chosen already that it runs next.
 */
bool xk_call_place(struct xk_thread *thread, int core, bool *next);

/* With the thread's run queue lock. The kernel takes a ready thread out of its queue. */
void xk_call_oust(struct xk_thread *thread);

/* With the thread's run queue lock. Returns true if the thread shall stop. */
bool xk_call_tick(struct xk_thread *thread);
void xk_call_block(struct xk_thread *thread);
void xk_call_terminate(struct xk_thread *thread);

/*
 * With the lock of the core: the policy makes a thread of it running, which is returned; NULL if
 * it chose none.
 */
struct xk_thread *xk_call_schedule(struct xk_sched_policy *policy, int core);
void xk_call_newly_idle(struct xk_sched_policy *policy, int core);

/*
 * With the lock of its policy: a thread that is ready on a core which its policy has no more, or on
 * `gone`, goes to another one. False if this has to be tried again.
 */
bool xk_call_move(struct xk_thread *thread, int gone);

/* All CPUs are stopped, and the thread was in the policy `old`. False if its new one is ejected. */
bool xk_call_adopt(struct xk_thread *thread, const struct xk_sched_policy *old);

#endif /* _XK_SCHED_CALL_H */
