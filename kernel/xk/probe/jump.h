/* SPDX-License-Identifier: GPL-2.0-only */
/* Jumps of probes: jump.c, arm.c and retire.c. All functions need xk_lock and may sleep. */
#ifndef _XK_PROBE_JUMP_H
#define _XK_PROBE_JUMP_H

#include "probe/allowed.h"
#include "probe/function.h"
#include "probe/probe.h"

/* What is known while points are planned. */
struct xk_plan {
	struct xk_function function;	/* of the last place */
	struct xk_allowed allowed;
	const struct module *coming;	/* that may be in its initialisation; or NULL */
	struct list_head jumps;		/* to be written; they stay in it until they are armed */
};

/*
 * Gives the point a jump: an existing one whose window contains it, or a new one. Returns NULL, or
 * why there can be none. A jump that must be written is added to plan->jumps.
 */
const char *xk_jump_plan(struct xk_plan *plan, struct xk_point *point,
			 const struct xk_probe_place *place);

/* The code of an armed jump must be built again: it serves this point in another way. */
void xk_jump_plan_again(struct xk_point *point, struct list_head *jumps);

/* Returns NULL if a jump may replace the measured window in the function, or why not. */
const char *xk_jump_check_window(const struct xk_plan *plan, const struct xk_window *window);

/*
 * Claims the bytes of the measured window, and guards them. Returns NULL, or why that is
 * impossible.
 */
const char *xk_jump_guard(const struct xk_plan *plan, struct xk_jump *jump);

/* The jump was never armed: frees it. Its points do not use it any more. */
void xk_jump_drop(struct xk_jump *jump);

/* Builds jump.next. Returns false without memory, or if it is too long. */
bool xk_jump_build(struct xk_jump *jump);

/* Frees slots that no jump ever led to, or that no thread is in. NULL is allowed. */
void xk_jump_code_free(struct xk_jump_code *code);

/*
 * Writes the code of the jumps, and the jumps themselves. Returns the number of stops. A jump that
 * cannot be armed is left as it was; jump.why says why.
 */
unsigned int xk_jumps_arm(struct list_head *jumps);

/* Whether the text is our jump, and no one else has a probe on it. Preemption is disabled. */
bool xk_jump_is_intact(const struct xk_jump *jump);

/* Adds an armed jump to `jumps`, to be retired, unless a hook or a short jump needs it. */
void xk_jump_retire_unused(struct xk_jump *jump, struct list_head *jumps);

/*
 * Removes jumps whose points have no hooks. They and their points are freed later. Returns the
 * number of stops.
 */
unsigned int xk_jumps_retire(struct list_head *jumps);

/* Frees slots that no jump leads to any more, later. NULL is allowed. */
void xk_jump_code_retire(struct xk_jump_code *code);

/* point.c. Frees a point that nothing uses any more. NULL is allowed. */
void xk_point_free(struct xk_point *point);

/* Removes shields that no jump needs, and frees what was retired, in the background. */
void xk_retired_soon(void);

/* Waits until everything retired is freed, as far as possible. Without xk_lock. */
void xk_retired_flush(void);

/*
 * Frees what is retired in the text of a module that is being removed, whoever has probes on it.
 * Nothing executes the text any more. Waits. Without xk_lock.
 */
void xk_retired_forget(const struct module *module);

/* Waits until everything is freed. Without xk_lock. */
void xk_retired_exit(void);

#endif /* _XK_PROBE_JUMP_H */
