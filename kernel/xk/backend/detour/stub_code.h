/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stub of a detour: the target of the jump at a site. Its layout depends on when the update
 * runs:
 *
 *	before	selector; handler; policy; native; window
 *	after	instruction; selector; handler; policy; native; rest of window
 *	instead	selector; handler; policy; native (these go to the rest); window
 *
 * The instructions of the window before the site precede each of these.
 *
 * The selector is a jump to one of four paths. `handler` saves the registers and calls the handler,
 * which makes the same updates as that of a probe. `policy` lets a policy choose the value of one
 * register, and does nothing else. `native` is the update as native code (ops/native.h); if memory
 * faults, it takes the handler path. The fourth path leads to what follows them.
 */
#ifndef _XK_STUB_CODE_H
#define _XK_STUB_CODE_H

#include <asm/ibt.h>

#include "text/stub.h"

struct pt_regs;
struct xk_poke;

/* Entry points of stubs in entry.S. */
extern u8 xk_stub_call_handler[];
extern u8 xk_stub_call_policy[];

/*
 * Writes the stub for its window, with the selector at XK_PATH_HANDLER. No one runs it yet. Under
 * the text lock. Returns NULL, or the reason why there can be no stub.
 */
const char *xk_stub_build(struct xk_stub *stub);

/* Fills `poke` with the change of text that makes the selector lead to `path`. */
void xk_stub_select(const struct xk_stub *stub, enum xk_stub_path path, struct xk_poke *poke);

/*
 * call.c. Called only by entry.S, directly, with the registers of the site. Returns 0, or if the
 * update was not made, the number of bytes by which the stub continues later.
 */
__noendbr unsigned long xk_detour_run(struct pt_regs *regs, const struct xk_stub *stub);

#endif /* _XK_STUB_CODE_H */
