/* SPDX-License-Identifier: GPL-2.0-only */
/* The detour backend, for those who change values and for main.c. */
#ifndef _XK_DETOUR_H
#define _XK_DETOUR_H

#include "poke.h"

struct module;
struct xk_live_site;
struct xk_tune;
struct xk_values;

int xk_detour_init(void);
/* Waits until no stub is in use. */
void xk_detour_exit(void);

/*
 * Whether the site can be a detour: NULL, and a stub is ready, or why not. `text` are
 * the verified bytes of the function.
 */
const char *xk_detour_prepare(struct xk_live_site *site, const u8 *text, u32 len);

/*
 * A transition begins: the changes that make every stub of the tunes ask for its
 * value. NULL when there are none. -ENOMEM as ERR_PTR().
 */
struct xk_pokes *xk_detours_ask(struct xk_tune *const *tunes, unsigned int nr);
/* They were made. */
void xk_detours_asked(struct xk_tune *const *tunes, unsigned int nr);
/*
 * Whether some would go on with what is not in force any more if these values were,
 * so that they must ask first.
 */
bool xk_detours_must_ask(const struct xk_tune *tune, const struct xk_values *next);
/* It is over: stubs that need not ask do not. */
void xk_detours_settle(struct xk_tune *const *tunes, unsigned int nr);

/*
 * The sites are no detours any more: when it returns, no update runs. At most XK_BATCH.
 */
void xk_detours_retire(struct xk_live_site **sites, unsigned int nr);

/* Its text goes: nothing is put back there. */
void xk_detour_module_going(const struct module *module);

#endif /* _XK_DETOUR_H */
