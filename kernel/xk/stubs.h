/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stubs: what a jump at a site leads to. They lie in the text of xk.ko, so that
 * a distance of 32 bits leads from and to every text of the kernel, and traces
 * and profiles name them; and all of it is text that the kernel keeps read-only.
 *
 *	before	gate; ask; decide; value; window
 *	after	instruction; gate; ask; decide; value; rest of window
 *	instead	gate; ask; decide; value (these go to the rest); window
 *
 * each behind what of the window lies before the instruction at the site.
 *
 * The gate leads to one of four: `ask` saves the registers and calls the handler
 * that probes use; `decide` lets a policy say what one register becomes, and only
 * that; `value` is the update itself, as native code (native.h), which asks if memory
 * faults; or to what is behind them.
 */
#ifndef _XK_STUBS_H
#define _XK_STUBS_H

#include <linux/types.h>

#include "native.h"
#include "relocate.h"
#include "stub_layout.h"

struct xk_guards;
struct xk_live_site;
struct xk_site_values;
struct xk_turn;
struct xk_values;
struct pt_regs;
struct xk_poke;

enum xk_gate {
	XK_GATE_ASK,
	XK_GATE_DECIDE,
	XK_GATE_VALUE,
	XK_GATE_SKIP,
	XK_GATES,
};

struct xk_stub {
	struct xk_live_site *site;	/* NULL: nobody's */
	bool dying;			/* of nobody, but threads may be in it */
	bool armed;			/* our jump is in the window */
	const char *why;		/* it could not be armed */
	/* When the last stop looked: */
	bool entered;			/* a thread was in the middle of the window */
	bool empty;			/* no thread was in the stub */
	bool has_value;			/* XK_GATE_VALUE leads to native code */
	bool can_decide;		/* so does XK_GATE_DECIDE */
	enum xk_gate state;
	u8 gate;			/* offset of the gate; a jump of two bytes */
	u8 target[XK_GATES];		/* displacement of that jump */
	u8 fault_distance;		/* how much further on it goes without an update */
	/* What XK_GATE_VALUE reads: one constant, once, or where all are. */
	u64 value;
	const u64 *constants;
	u64 last[XK_NATIVE_CONSTANTS];	/* these, when the tune goes */
	const struct xk_site_values *decided;	/* what XK_GATE_DECIDE reads; NULL: `value` */
	struct xk_guards *guards;
	struct xk_window window;
};

/* stub.S */
extern u8 xk_stub_pool[];
extern u8 xk_stub_ask[];
extern u8 xk_stub_decide[];

struct xk_stub *xk_stub_get(struct xk_live_site *site);
void xk_stub_put(struct xk_stub *stub);
/* The one behind it; the first behind NULL; NULL at the end. */
struct xk_stub *xk_stub_next(struct xk_stub *stub);
unsigned long xk_stub_address(const struct xk_stub *stub);
/* A jump of ours begins there; or covers it. */
bool xk_stub_covers(unsigned long address);
bool xk_stub_has(unsigned long address);
void xk_stub_write_gate(const struct xk_stub *stub, enum xk_gate gate, struct xk_poke *poke);

/*
 * Fills it, with the gate at XK_GATE_ASK, for the window that it has. Under the lock
 * of text. NULL, or why it cannot be.
 */
const char *xk_stub_build(struct xk_stub *stub);

/* gates.c. Where the gate leads while nothing but these values is in force. */
enum xk_gate xk_gate_of(const struct xk_stub *stub, const struct xk_values *values);
/* What it leads to reads them from now on. */
void xk_stub_take(struct xk_stub *stub, const struct xk_values *values);

/* ask.c and decide.c; only stub.S calls them. */
unsigned long xk_detour_run(struct pt_regs *regs, const struct xk_stub *stub);
u64 xk_detour_decide(struct pt_regs *regs, const struct xk_stub *stub);

static inline bool xk_is_stub(unsigned long address)
{
	return address - (unsigned long)xk_stub_pool < XK_STUBS * XK_STUB_LEN;
}

/* The stub is that of a tune which is in this transition. */
bool xk_stub_turns(unsigned long address, const struct xk_turn *turn);

static inline bool xk_in_stub(const struct xk_stub *stub, unsigned long address)
{
	return address - xk_stub_address(stub) < XK_STUB_LEN;
}

#endif /* _XK_STUBS_H */
