/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stubs: space for code that xk.ko generates. They are part of the text of xk.ko. So a 32-bit
 * displacement reaches all kernel text, traces and profiles name them, and the kernel keeps them
 * read-only.
 *
 * A stub has one of three uses: the target of a detour's jump (backend/detour), native code that
 * handlers call (core/code.c), or copies of instructions that change (backend/patch).
 */
#ifndef _XK_STUB_H
#define _XK_STUB_H

#include <linux/types.h>

#include "base/stub_layout.h"
#include "ops/native.h"
#include "text/relocate.h"

struct xk_guards;
struct xk_live_site;
struct xk_poke;
struct xk_site_values;

/*
 * The paths of a detour's stub, one of which its selector selects; see backend/detour/stub_code.h.
 */
enum xk_stub_path {
	XK_PATH_HANDLER,	/* calls the handler */
	XK_PATH_POLICY,		/* a policy chooses the value of one register */
	XK_PATH_NATIVE,		/* the update as native code */
	XK_PATH_ORIGINAL,	/* no update */
	XK_PATHS,
};

struct xk_stub {
	struct xk_live_site *site;	/* NULL: unused, or retired */
	bool retired;			/* without a site, but threads may be in it */
	bool armed;			/* the jump of xk.ko is in the window */
	const char *why;		/* why it could not be armed */
	/* Results of the last look at threads: */
	bool entered;			/* a thread was in the middle of the window */
	bool empty;			/* no thread was in the stub */
	bool has_native;		/* it has XK_PATH_NATIVE */
	bool has_policy;		/* it has XK_PATH_POLICY */
	enum xk_stub_path path;		/* that the selector leads to */
	u8 selector;			/* offset of the selector, a jump of two bytes */
	u8 target[XK_PATHS];		/* displacement of the selector for each path */
	u8 fault_distance;		/* return that much later without an update */
	/*
	 * For XK_PATH_NATIVE: the constant if it reads one, once; else the pointer to all
	 * constants.
	 */
	u64 value;
	const u64 *constants;
	u64 last[XK_NATIVE_CONSTANTS];	/* copy of these when the tune is unloaded */
	const struct xk_site_values *decided;	/* for XK_PATH_POLICY; NULL: use `value` */
	struct xk_guards *guards;
	struct xk_window window;
};

/* stub_pool.S */
extern u8 xk_stub_pool[];

/*
 * Returns an unused stub for the site, or NULL if all are in use. The functions here need xk_lock
 * unless they say otherwise.
 */
struct xk_stub *xk_stub_get(struct xk_live_site *site);

/* Makes a stub unused. No thread is in it, and no jump leads to it. */
void xk_stub_put(struct xk_stub *stub);

/* Returns the stub after this one, or the first one for NULL; NULL at the end. */
struct xk_stub *xk_stub_next(struct xk_stub *stub);

/* Returns the address of the stub's code. In any context. */
unsigned long xk_stub_address(const struct xk_stub *stub);

/*
 * Returns the site of the stub that contains this address; NULL if the stub has none. Also in a
 * stop.
 */
const struct xk_live_site *xk_stub_site(unsigned long address);

/* The stub that has this address has copies of instructions from `start` to before `end`. */
bool xk_stub_overlaps(unsigned long address, unsigned long start, unsigned long end);

/* Fills `poke` with the jump from the window of a stub to the stub. */
void xk_jump_of(const struct xk_stub *stub, struct xk_poke *poke);

/* Whether these bytes, at most XK_MAX_WINDOW, are the running text there. In any context. */
bool xk_text_is(unsigned long address, const u8 *bytes, unsigned int len);

/* Whether a jump of an unloaded tune covers this address, until a stop removes it: see retire.c. */
bool xk_jump_is_retired(unsigned long address);

/* Whether a jump of xk.ko begins at this address; whether one covers it. */
bool xk_jump_begins(unsigned long address);
bool xk_jump_covers(unsigned long address);
/* Whether one overlaps the text from `start` to before `end`. */
bool xk_jump_overlaps(unsigned long start, unsigned long end);

/* Whether the address is in some stub. */
static inline bool xk_is_stub(unsigned long address)
{
	return address - (unsigned long)xk_stub_pool < XK_STUBS * XK_STUB_LEN;
}

/* Whether the address is in this stub. */
static inline bool xk_in_stub(const struct xk_stub *stub, unsigned long address)
{
	return address - xk_stub_address(stub) < XK_STUB_LEN;
}

#endif /* _XK_STUB_H */
