/* SPDX-License-Identifier: GPL-2.0-only */
/* The patch backend: instructions hold the value themselves. */
#ifndef _XK_PATCH_H
#define _XK_PATCH_H

#include <linux/types.h>

#include "model/backend.h"
#include "model/site.h"
#include "text/relocate.h"
#include "text/stub.h"

struct xk_guards;

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

/* NULL: the site is not prepared, or of another backend. */
struct xk_live_patch *xk_patch_of(const struct xk_live_site *site);

/* A stub holds two copies of every instruction, each followed by a jump. */
#define XK_COPY_LEN (XK_STUB_LEN / (2 * XK_MAX_PATCHES))

enum xk_copy {
	XK_COPY_BEFORE,
	XK_COPY_AFTER,
};

/* instruction.c. The number in the instruction would mean this value. */
bool xk_patch_has_room(const struct xk_patch *what, u64 iv);

/* The instruction for `value`. */
bool xk_patch_compose(const struct xk_live_site *site, const struct xk_patched *patched,
		      s64 value, u8 *bytes);
unsigned long xk_copy_address(const struct xk_live_patch *patch, unsigned int index,
			      enum xk_copy which);

/* False: it is too far, or cannot stand elsewhere. */
bool xk_copy_compose(const struct xk_window *window, u8 *code, unsigned long address);

/* Under the lock of text. Nobody runs it. */
void xk_copy_write(const struct xk_live_patch *patch, unsigned int index, enum xk_copy which,
		   const u8 *bytes);

/* Nobody else has changed it; a probe there may have a breakpoint in it. */
bool xk_patch_in_force(const struct xk_patched *patched);

/* Likewise, and nobody has a copy of it. */
bool xk_patch_may_change(const struct xk_patched *patched);

bool xk_patches_all(const struct xk_live_patch *patch,
		    bool (*state)(const struct xk_patched *patched));

/* change.c: hooks of the backend. */
struct xk_text_change *xk_patches_change_text(struct xk_tune *const *tunes, unsigned int nr,
					      bool settling);
unsigned long xk_patches_find_obstacle(const struct xk_text_change *change);
void xk_patches_changed(struct xk_text_change *change, struct xk_tune *const *tunes,
			unsigned int nr);
void xk_patches_free(struct xk_text_change *change);
int xk_patches_arm(struct xk_live_site **sites, unsigned int nr, struct xk_error *error);

extern const struct xk_backend xk_backend_patch;

#endif /* _XK_PATCH_H */
