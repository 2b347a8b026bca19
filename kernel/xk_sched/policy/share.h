/* SPDX-License-Identifier: GPL-2.0-only */
/* How policies share a core: share.c. */
#ifndef _XK_SCHED_SHARE_H
#define _XK_SCHED_SHARE_H

#include "model/core.h"

struct xk_error;

/*
 * With the lock of the core: the policy among these (bits) that has had least for its weight. The
 * first one after the last that was asked, if several have.
 */
int xk_share_first(struct xk_core *core, u32 policies, int cpu);

/*
 * With the run queue lock: the thread has run for a tick. Returns whether it shall stop, since
 * another policy waits that has had less.
 */
bool xk_share_tick(struct xk_thread *thread);

/* Changes the weight of a policy. May sleep. */
int xk_policy_set_weight(const char *name, u32 weight, struct xk_error *error);

#endif /* _XK_SCHED_SHARE_H */
