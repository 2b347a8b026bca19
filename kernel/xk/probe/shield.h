/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shields: shield.c. A shield keeps kprobes from being optimised in a function of which branches
 * were moved to slots. All functions need xk_lock.
 */
#ifndef _XK_PROBE_SHIELD_H
#define _XK_PROBE_SHIELD_H

#include <linux/list.h>

#include "text/claim.h"
#include "text/internal.h"

struct module;
struct xk_allowed;
struct xk_function;
struct xk_pokes;

struct xk_shield {
	struct xk_claim claim;		/* padding at the end of the function */
	u8 bytes[XK_MAX_WINDOW];	/* in its place */
	struct xk_addresses function;
	unsigned int nr_jumps;		/* that need it */
	struct list_head list;		/* of shields that no jump needs */
};

/*
 * Returns the shield of the function, for one more jump, or NULL if there can be none. It is not
 * written yet, unless another jump needs it. May sleep.
 */
struct xk_shield *xk_shield_get(const struct xk_function *function,
				const struct xk_allowed *allowed);

/* One jump less. NULL is allowed. Returns whether xk_shields_remove() has something to remove. */
bool xk_shield_put(struct xk_shield *shield);

/*
 * In a stop: adds the shield to what is written in it, unless it is written already. Returns false
 * if its text is not the original one, or a kprobe could overwrite it.
 */
bool xk_shield_write(struct xk_shield *shield, struct xk_pokes *pokes);

/*
 * Restores the padding of shields that no jump needs. No thread may execute a branch that they
 * were for. Returns false if some must stay, because someone else has a kprobe on them. May sleep.
 */
bool xk_shields_remove(void);

/*
 * Frees the shields that no jump needs in the text of a module that is being removed. The text
 * stays as it is.
 */
void xk_shields_forget(const struct module *module);

/* The function in which kprobes optimise no probe because of the shield; NULL without one. */
static inline const struct xk_addresses *xk_shielded(const struct xk_shield *shield)
{
	return shield ? &shield->function : NULL;
}

#endif /* _XK_PROBE_SHIELD_H */
