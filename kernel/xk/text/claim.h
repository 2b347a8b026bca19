/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Claims: text that probes hold. Tunes find out from here which instructions are taken, and
 * what the original bytes are. All functions need xk_lock.
 */
#ifndef _XK_CLAIM_H
#define _XK_CLAIM_H

#include <linux/rbtree.h>
#include <linux/types.h>

#include "text/relocate.h"

struct xk_claim {
	struct rb_node node;
	unsigned long address;
	u8 len;
	bool written;			/* the text is not the original one */
	bool is_shield;			/* else part of a jump of probes */
	u8 bytes[XK_MAX_WINDOW];	/* the original text */
};

/* Returns the claim with the lowest address that overlaps `start` to before `end`, or NULL. */
struct xk_claim *xk_claim_find(unsigned long start, unsigned long end);

/* Adds a claim, which must not overlap another one. */
void xk_claim_add(struct xk_claim *claim);
void xk_claim_remove(struct xk_claim *claim);

/* Whether a written claim begins at this address; whether one covers it. */
bool xk_claim_begins(unsigned long address);
bool xk_claim_covers(unsigned long address);

/* Restores the original bytes of written claims in `view`, a copy of the text from `start` on. */
void xk_claims_undo(u8 *view, unsigned long start, u32 len);

/*
 * Addresses of relays: a thread there has the stack of another place (probe/relay.c). Adding may
 * sleep, and returns false without memory. Asking is allowed in any context.
 */
bool xk_relay_add(unsigned long address);
void xk_relay_remove(unsigned long address);
bool xk_is_relay(unsigned long address);

#endif /* _XK_CLAIM_H */
