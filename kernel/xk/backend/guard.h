/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guard probes, and what kprobes report about a window: guard.c.
 *
 * A guard is a disabled kprobe that keeps other kprobes from being optimised into a jump over
 * instructions that xk.ko changed, or over a target of a stub.
 */
#ifndef _XK_GUARD_H
#define _XK_GUARD_H

#include "text/relocate.h"

struct xk_addresses;
struct xk_guards;
struct xk_live_site;

/*
 * Returns NULL if kprobes allow a probe at each instruction of the window, or why they do not. This
 * and all other functions here need xk_lock, and may sleep unless they are called in a stop.
 */
const char *xk_ask_kprobes(const struct xk_window *window);

/*
 * Guards a window that is to become a jump. In `shielded`, which may be NULL, kprobes see the
 * targets of its branches once the jump is written: these need no guards, unless there is a kprobe
 * already. Returns NULL if the window cannot be guarded, with the reason in `why`.
 */
struct xk_guards *xk_guards_create(const struct xk_window *window,
				   const struct xk_addresses *shielded, const char **why);

/* Marks guards for xk_guards_flush(). NULL is allowed. */
void xk_guards_destroy(struct xk_guards *guards);
/* Adds guards against probes registered since then, and at guards of other windows or numbers. */
void xk_guards_complete(struct xk_guards *guards, const struct xk_window *window);
/* In a stop: whether a guard of another window, or of a number, lies in this window. */
bool xk_window_is_guarded(const struct xk_window *window);
/*
 * In a stop, before the window becomes our jump: whether a probe without one of these guards
 * could be optimised into a jump that reaches into the window.
 */
bool xk_jump_may_come(const struct xk_guards *guards, const struct xk_window *window);

/* The same for the targets of its branches in `shielded`. */
bool xk_jump_may_come_over_targets(const struct xk_guards *guards, const struct xk_window *window,
				   const struct xk_addresses *shielded);

/*
 * Guards the instructions of `site` at these addresses, in which numbers are to change. No one else
 * may have a probe there yet. The guards stay until the original numbers are restored. Returns NULL
 * if they cannot be guarded, with the reason in `why`.
 */
struct xk_guards *xk_guards_of_numbers(const struct xk_live_site *site,
				       const unsigned long *addresses, unsigned int nr,
				       const char **why);
/*
 * Whether no kprobe has a copy of the instruction there. In a stop, or with preemption disabled
 * after xk_guards_flush().
 */
bool xk_number_is_free(unsigned long address);

/*
 * Unregisters and frees destroyed guards. kprobes wait for a grace period, which is long; here
 * there is one for all of them.
 */
void xk_guards_flush(void);

#endif /* _XK_GUARD_H */
