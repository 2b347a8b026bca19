/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stub of a detour: what the jump at a site leads to.
 *
 *	before	selector; handler; policy; native; window
 *	after	instruction; selector; handler; policy; native; rest of window
 *	instead	selector; handler; policy; native (these go to the rest); window
 *
 * each preceded by what of the window lies before the instruction at the site.
 *
 * The selector is a jump to one of four paths: `handler` saves the registers and calls the
 * handler that probes use; `policy` lets a policy choose what one register becomes, and only
 * that; `native` is the update itself, as native code (ops/native.h), which takes the path of
 * the handler if memory faults; or to what follows them.
 */
#ifndef _XK_STUB_CODE_H
#define _XK_STUB_CODE_H

#include "text/stub.h"

struct pt_regs;
struct xk_poke;

/* entry.S */
extern u8 xk_stub_call_handler[];
extern u8 xk_stub_call_policy[];

/*
 * Writes the stub, with the selector at XK_PATH_HANDLER, for the window that it has. Nothing
 * runs it yet. Under the lock of text. NULL, or why it cannot be.
 */
const char *xk_stub_build(struct xk_stub *stub);

/* The change of text by which the selector leads to `path`. */
void xk_stub_select(const struct xk_stub *stub, enum xk_stub_path path, struct xk_poke *poke);

/* call.c; only entry.S calls it. */
unsigned long xk_detour_run(struct pt_regs *regs, const struct xk_stub *stub);

#endif /* _XK_STUB_CODE_H */
