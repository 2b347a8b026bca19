/* SPDX-License-Identifier: GPL-2.0-only */
/* Short jumps, relays and hosts: relay.c. All functions need xk_lock. */
#ifndef _XK_PROBE_RELAY_H
#define _XK_PROBE_RELAY_H

#include "probe/jump.h"

struct xk_poke;

/*
 * Creates the host of a short jump, whose window is measured, and adds it to plan->jumps. Returns
 * NULL, or why there can be none. May sleep.
 */
const char *xk_relay_plan(struct xk_plan *plan, struct xk_jump *jump,
			  const struct xk_point *point, const struct xk_probe_place *place);

/* Lets the relay lead to this code, as soon as the host or the relay is written. */
void xk_relay_aim(const struct xk_jump *jump, const struct xk_jump_code *code);

/*
 * In a stop: returns NULL if the relay is in place, or the reason why not. xk_relay_write() fills
 * the change that lets a short jump lead to `code`.
 */
const char *xk_relay_why_not(const struct xk_jump *jump);
void xk_relay_write(const struct xk_jump *jump, const struct xk_jump_code *code,
		    struct xk_poke *poke);

/* Whether a short jump, which is armed, and its relay are ours. Preemption is disabled. */
bool xk_relay_is_intact(const struct xk_jump *jump);

/* The jump is about to be freed: a host of it, or a guest, does without it. */
void xk_relay_forget(struct xk_jump *jump);

/* Removes hosts that nothing needs any more. Returns the number of stops. May sleep. */
unsigned int xk_relay_retire_hosts(void);

#endif /* _XK_PROBE_RELAY_H */
