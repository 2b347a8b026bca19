/* SPDX-License-Identifier: GPL-2.0-only */
/* The recording of a policy: recording.c. One at a time. */
#ifndef _XK_SCHED_RECORDING_H
#define _XK_SCHED_RECORDING_H

#include "xk_sched.h"

/* Memory for records, after a head. */
struct xk_recording {
	char *buffer;
	size_t size;
	size_t used;
	size_t complete;	/* up to the last event that has ended */
	u64 missed;		/* records that had no place; none follows the first of them */
};

/*
 * Records all that happens in the policy until it ends. False if a thread has been in the policy:
 * then its private data are not known. Interrupts are on.
 */
bool xk_recording_start(struct xk_recording *recording, struct xk_sched_policy *policy);
/* When it returns, nobody uses the memory. Interrupts are on. */
void xk_recording_stop(void);

/* The policy is not recorded any more; its events are not called any more. */
void xk_recording_forget(const struct xk_sched_policy *policy);

#endif /* _XK_SCHED_RECORDING_H */
