/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stubs: room for code that xk.ko writes. They lie in the text of xk.ko, so that a distance
 * of 32 bits leads from and to every text of the kernel, and traces and profiles name them;
 * and all of it is text that the kernel keeps read-only.
 *
 * A stub has one of three uses: what the jump of a detour leads to (backend/detour), native
 * code that handlers call (core/code.c), copies of instructions that change (backend/patch).
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

/* Where the selector of a detour's stub leads; see backend/detour/stub_code.h. */
enum xk_stub_path {
	XK_PATH_HANDLER,	/* calls the handler that probes use */
	XK_PATH_POLICY,		/* lets a policy choose what one register becomes */
	XK_PATH_NATIVE,		/* the update as native code */
	XK_PATH_ORIGINAL,	/* no update */
	XK_PATHS,
};

struct xk_stub {
	struct xk_live_site *site;	/* NULL: nobody's */
	bool retired;			/* of nobody, but threads may be in it */
	bool armed;			/* our jump is in the window */
	const char *why;		/* it could not be armed */
	/* When the last stop looked: */
	bool entered;			/* a thread was in the middle of the window */
	bool empty;			/* no thread was in the stub */
	bool has_native;		/* it has XK_PATH_NATIVE */
	bool has_policy;		/* it has XK_PATH_POLICY */
	enum xk_stub_path path;		/* where the selector leads */
	u8 selector;			/* its offset; a jump of two bytes */
	u8 target[XK_PATHS];		/* displacement of that jump */
	u8 fault_distance;		/* how much further on it returns without an update */
	/* What XK_PATH_NATIVE reads: one constant, once, or where all are. */
	u64 value;
	const u64 *constants;
	u64 last[XK_NATIVE_CONSTANTS];	/* these, when the tune goes */
	const struct xk_site_values *decided;	/* what XK_PATH_POLICY reads; NULL: `value` */
	struct xk_guards *guards;
	struct xk_window window;
};

/* stub_pool.S */
extern u8 xk_stub_pool[];

/* All of this under xk_lock, unless said otherwise. NULL when all are in use. */
struct xk_stub *xk_stub_get(struct xk_live_site *site);
void xk_stub_put(struct xk_stub *stub);

/* The one after it; the first for NULL; NULL at the end. */
struct xk_stub *xk_stub_next(struct xk_stub *stub);

unsigned long xk_stub_address(const struct xk_stub *stub);

/* The site of the stub that has this address; NULL: nobody's. Also in a stop. */
const struct xk_live_site *xk_stub_site(unsigned long address);

/* The stub that has this address has copies of instructions from `start` to before `end`. */
bool xk_stub_overlaps(unsigned long address, unsigned long start, unsigned long end);

/* The jump in the window of a stub. */
void xk_jump_of(const struct xk_stub *stub, struct xk_poke *poke);

/* These bytes run there; at most XK_MAX_WINDOW. */
bool xk_text_is(unsigned long address, const u8 *bytes, unsigned int len);

/* A jump of a tune that has gone covers it, until there can be a stop: see retire.c. */
bool xk_jump_is_retired(unsigned long address);

/* A jump of ours begins there; or covers it. */
bool xk_jump_begins(unsigned long address);
bool xk_jump_covers(unsigned long address);

static inline bool xk_is_stub(unsigned long address)
{
	return address - (unsigned long)xk_stub_pool < XK_STUBS * XK_STUB_LEN;
}

static inline bool xk_in_stub(const struct xk_stub *stub, unsigned long address)
{
	return address - xk_stub_address(stub) < XK_STUB_LEN;
}

#endif /* _XK_STUB_H */
