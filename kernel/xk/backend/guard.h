/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What kprobes say about a window, and what keeps other probes from becoming jumps
 * over places that stubs lead to.
 */
#ifndef _XK_GUARD_H
#define _XK_GUARD_H

#include "text/relocate.h"

struct xk_guards;
struct xk_live_site;
struct xk_stub;

/* All of this under xk_lock. NULL, or why kprobes forbid a probe at an instruction. */
const char *xk_ask_kprobes(const struct xk_window *window);

/* For the window of the stub; NULL and `why` if it cannot be. */
struct xk_guards *xk_guards_create(struct xk_stub *stub, const char **why);
void xk_guards_destroy(struct xk_guards *guards);
/* Against probes that came since then, or before guards that others have of us. */
void xk_guards_complete(struct xk_stub *stub);
/* A guard stands in it, which another window or a number needs there. In a stop. */
bool xk_window_is_guarded(const struct xk_window *window);
/*
 * A probe without a guard stands where a jump that the kernel makes of it would reach into
 * the window. In a stop, and before the window is our jump.
 */
bool xk_jump_may_come(const struct xk_stub *stub);

/*
 * For instructions of `site` at these addresses in which numbers are to change; nobody
 * else may have a probe there yet. They go when the original numbers are back.
 */
struct xk_guards *xk_guards_of_numbers(const struct xk_live_site *site,
				       const unsigned long *addresses, unsigned int nr,
				       const char **why);
/* Nobody has a copy of the instruction there. In a stop, or when asked probes are gone. */
bool xk_number_is_free(unsigned long address);

/*
 * What was destroyed is registered until then: kprobes wait for a grace period,
 * which is long, and is one for all of them.
 */
void xk_guards_flush(void);

#endif /* _XK_GUARD_H */
