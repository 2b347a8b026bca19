/* SPDX-License-Identifier: GPL-2.0-only */
/* CPUs, and which thread is protected by which lock: core.c. */
#ifndef _XK_SCHED_CORE_H
#define _XK_SCHED_CORE_H

#include <linux/percpu-defs.h>
#include <linux/spinlock.h>

#include "uapi/xk_sched.h"
#include "xk_sched.h"

#define XK_MAX_POLICIES 32

/*
 * The lock protects the queues of this core, of all policies, and the threads whose `core` it is.
 * It is taken inside of run queue locks, with interrupts off. Whoever holds it may try to take the
 * lock of another core, and must not wait for it.
 */
struct xk_core {
	raw_spinlock_t lock;
	u32 ready;		/* bit: a policy has threads in queues of this core */
	int turn;		/* id of the policy after the one that chose last */
	u64 time;		/* of the policy that chose last */
	/*
	 * Was chosen as it was placed, and may not have begun to run; only compared, as it may have
	 * gone elsewhere.
	 */
	const struct xk_thread *next;
};

DECLARE_PER_CPU_ALIGNED(struct xk_core, xk_cores);

/* Part of a policy, protected by the lock of the core. */
struct xk_policy_core {
	unsigned int nr_ready;
	u64 nr_switches;
	u64 nr_declined;	/* how often `schedule` chose none of the ready threads */
	u64 time;		/* its threads have run, divided by its weight: policy/share.c */
	/* Counted while somebody looks: count.h. */
	u64 nr_moves;		/* it chose a thread that it had chosen for another core before */
	u64 waited_ns;
	u64 waits[XK_SCHED_NR_WAITS];
};

/* There are several policies, so what each has had is counted. */
extern bool xk_several_policies;

void xk_cores_init(void);

/* Locks the core of a thread; interrupts are off. The thread must not be freed meanwhile. */
struct xk_core *xk_core_lock(const struct xk_thread *thread);

/* With the lock of the core: counts what the thread has run since this was called last. */
void xk_core_charge(struct xk_thread *thread, struct xk_policy_core *own);

#endif /* _XK_SCHED_CORE_H */
