/* SPDX-License-Identifier: GPL-2.0-only */
/* A transition that is under way; turn.c. All of it under xk_lock. */
#ifndef _XK_TURN_H
#define _XK_TURN_H

#include <linux/types.h>
#include <linux/workqueue.h>

#include "scan.h"
#include "stops.h"
#include "xk.h"

enum xk_turn_phase {
	XK_TURN_WAITING,	/* nobody uses the new version */
	XK_TURN_SETTLING,	/* threads in `settling` use the one from before */
	XK_TURN_TURNING_BACK,	/* given up: the next stop makes the old version the new one */
};

/* One tune of it. */
struct xk_turn_part {
	struct xk_tune *tune;
	struct xk_values *other;	/* the version that is not tune->values */
	bool unload;
};

struct xk_turn {
	enum xk_mode mode;
	enum xk_turn_phase phase;
	bool reverting;
	unsigned int stops;
	struct delayed_work work;	/* goes on where no caller waits */
	struct xk_scan scan;		/* of the last stop, and the look before it */
	struct xk_stop_budget budget;
	unsigned int interval;		/* jiffies between two looks, where nobody waits */
	u64 looked_ns;			/* how long the last look took */
	struct xk_pokes *pokes;		/* for the next one: see gates.c; or NULL */
	struct xk_patches *patches;	/* likewise: see backend_patch.c */
	unsigned long obstacle;		/* an instruction that somebody else changed, or 0 */
	struct xk_settling *settling;
	unsigned int nr;
	struct xk_turn_part parts[] __counted_by(nr);
};

/* turn.c */
struct xk_turn *xk_turn_create(unsigned int nr, enum xk_mode mode);
int xk_turn_add(struct xk_turn *turn, struct xk_tune *tune, s64 value,
		struct xk_live_policy *policy, bool unload, struct xk_error *error);
bool xk_turn_advance(struct xk_turn *turn);
void xk_turn_revert(struct xk_turn *turn);
void xk_turn_finish(struct xk_turn *turn);
void xk_turn_leave(struct xk_turn *turn);

/* stop.c */
bool xk_stop(struct xk_turn *turn);

#endif /* _XK_TURN_H */
