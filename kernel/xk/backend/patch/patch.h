/* SPDX-License-Identifier: GPL-2.0-only */
/* The patch backend: the instructions hold the value themselves. All functions need xk_lock. */
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
	struct xk_window window;	/* its running bytes */
	struct xk_patch what;
	u8 original[XK_MAX_WINDOW];
};

/* The data of a site of this backend. */
struct xk_live_patch {
	struct xk_stub *stub;		/* copies for NMIs while the instructions change */
	struct xk_guards *guards;
	unsigned int nr;
	struct xk_patched at[XK_MAX_PATCHES];
};

/* Returns NULL if the site is not prepared or uses another backend. */
struct xk_live_patch *xk_patch_of(const struct xk_live_site *site);

/*
 * For each instruction, a stub holds code that chooses a copy, and two copies, each followed by a
 * jump. The first copy follows the choice.
 */
#define XK_CHOICE_LEN 16
#define XK_COPY_LEN ((XK_STUB_LEN / XK_MAX_PATCHES - XK_CHOICE_LEN) / 2)

enum xk_copy {
	XK_COPY_BEFORE,
	XK_COPY_AFTER,
};

/*
 * Returns the address of the code that continues in the copy after the change if this CPU has
 * switched (xk_epoch), and else in the copy before it.
 */
unsigned long xk_choice_address(const struct xk_live_patch *patch, unsigned int index);

/* Whether that code can read xk_epoch. */
bool xk_choice_possible(void);

/* Writes that code into the stub. Under the text lock. No one executes it. */
void xk_choice_write(const struct xk_live_patch *patch, unsigned int index);

/* instruction.c. Whether the field of the instruction can hold this encoded value. */
bool xk_patch_has_room(const struct xk_patch *what, u64 iv);

/* Writes the instruction for `value` to `bytes`. Returns false if it has no room for the value. */
bool xk_patch_compose(const struct xk_live_site *site, const struct xk_patched *patched,
		      s64 value, u8 *bytes);

/* Returns the address of a copy of instruction `index`. */
unsigned long xk_copy_address(const struct xk_live_patch *patch, unsigned int index,
			      enum xk_copy which);

/*
 * Writes a copy of the instruction, followed by a jump, to `code` for execution at `address`.
 * Returns false if a target is too far, or if it cannot be relocated.
 */
bool xk_copy_compose(const struct xk_window *window, u8 *code, unsigned long address);

/* Writes a copy with these bytes into the stub. Under the text lock. No one executes it. */
void xk_copy_write(const struct xk_live_patch *patch, unsigned int index, enum xk_copy which,
		   const u8 *bytes);

/* Whether the instruction is as xk.ko wrote it, except for the breakpoint of a probe. */
bool xk_patch_in_force(const struct xk_patched *patched);

/* Whether xk_patch_in_force() is true and no kprobe has a copy of the instruction. */
bool xk_patch_may_change(const struct xk_patched *patched);

/* Whether `state` is true for all instructions. Disables preemption meanwhile. */
bool xk_patches_all(const struct xk_live_patch *patch,
		    bool (*state)(const struct xk_patched *patched));

/* change.c: hooks of the backend. */
struct xk_text_change *xk_patches_change_text(struct xk_tune *const *tunes, unsigned int nr,
					      bool settling);

/* In the stop: an instruction that someone else changed or probes; or 0. */
unsigned long xk_patches_find_obstacle(const struct xk_text_change *change);

/* Records the bytes that were written. */
void xk_patches_changed(struct xk_text_change *change, struct xk_tune *const *tunes,
			unsigned int nr);

/* Frees a change. */
void xk_patches_free(struct xk_text_change *change);

/*
 * Writes the value in force into the sites. Needs a stop unless they hold it already. Returns 0, or
 * an error with its reason in `error`.
 */
int xk_patches_arm(struct xk_live_site **sites, unsigned int nr, struct xk_error *error);

extern const struct xk_backend xk_backend_patch;

#endif /* _XK_PATCH_H */
