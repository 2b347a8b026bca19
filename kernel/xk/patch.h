/* SPDX-License-Identifier: GPL-2.0-only */
/* The patch backend, for those who change values. */
#ifndef _XK_PATCH_H
#define _XK_PATCH_H

#include <linux/types.h>

#include "relocate.h"
#include "uapi/xk.h"

struct xk_error;
struct xk_guards;
struct xk_live_site;
struct xk_pokes;
struct xk_stub;
struct xk_tune;
struct xk_turn;

/* An instruction that holds a value. */
struct xk_patched {
	struct xk_window window;	/* its bytes as they run */
	struct xk_patch what;
	u8 original[XK_MAX_WINDOW];
};

/* A site of this backend. */
struct xk_live_patch {
	struct xk_stub *stub;		/* copies for NMIs, while the instructions change */
	struct xk_guards *guards;
	unsigned int nr;
	struct xk_patched at[XK_MAX_PATCHES];
};

/*
 * Whether a site's value can be written into its instructions: NULL, and all is ready, or
 * why not. `text` are the verified bytes of the function.
 */
const char *xk_patch_prepare(struct xk_live_site *site, const u8 *text, u32 len);

/* Puts the original bytes into what was read from `start` on. */
void xk_patch_undo(const struct xk_live_patch *patch, u8 *view, unsigned long start, u32 len);

/* Whether instructions of the tune have room for the value; if not, which says so. */
int xk_patch_accepts(const struct xk_tune *tune, s64 value, struct xk_error *error);

/*
 * At this address begins an instruction that holds a value, or is to hold one when the
 * tune of `site`, which may be NULL, is loaded.
 */
bool xk_patch_begins(const struct xk_live_site *site, unsigned long address);

/* The tune has a site of this backend. */
bool xk_is_patched(const struct xk_tune *tune);

/* Instructions that change in one stop. */
struct xk_patches {
	struct xk_pokes *pokes;
	unsigned int nr;
	struct xk_patched *at[];
};

/* To the other versions of a transition. NULL: nothing changes. -ENOMEM as ERR_PTR(). */
struct xk_patches *xk_patches_create(const struct xk_turn *turn);
void xk_patches_free(struct xk_patches *patches);

/*
 * In a stop, under the lock of text, in this order: whether all of them are as we left
 * them, else which is not; the change, in the transition of this epoch. Meanwhile, all
 * other CPUs follow, as xk_pokes_follow() says.
 */
const struct xk_patched *xk_patches_find_other(struct xk_patches *patches);
void xk_patches_make(struct xk_patches *patches, u64 epoch);

/* After the stop: they were made. */
void xk_patches_made(struct xk_patches *patches);

#endif /* _XK_PATCH_H */
