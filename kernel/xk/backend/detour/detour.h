/* SPDX-License-Identifier: GPL-2.0-only */
/* The detour backend: jumps to stubs. */
#ifndef _XK_DETOUR_H
#define _XK_DETOUR_H

#include "model/backend.h"
#include "model/tune.h"
#include "text/stub.h"

/* NULL: the site is not prepared, or of another backend. */
struct xk_stub *xk_detour_stub(const struct xk_live_site *site);
void xk_detour_set_stub(struct xk_live_site *site, struct xk_stub *stub);

/* window.c. Hook of the backend: a stub is ready, or why not. */
const char *xk_detour_prepare(struct xk_live_site *site, const u8 *text, u32 len);

/* path.c. Where the selector leads while nothing but these values is in force. */
enum xk_stub_path xk_stub_path_of(const struct xk_stub *stub, const struct xk_values *values);

/* What it leads to reads these values from now on. */
void xk_stub_set_values(struct xk_stub *stub, const struct xk_values *values);

/*
 * Hooks of the backend. When a transition begins, every stub is made to call its handler,
 * which knows who uses which version; when it is over, those that need no handler do not
 * call it.
 */
bool xk_detours_need_stop(const struct xk_tune *tune, const struct xk_values *next);
struct xk_text_change *xk_detours_change_text(struct xk_tune *const *tunes, unsigned int nr,
					      bool settling);
void xk_detours_changed(struct xk_text_change *change, struct xk_tune *const *tunes,
			unsigned int nr);
void xk_detours_free_change(struct xk_text_change *change);
void xk_detours_settle(struct xk_tune *const *tunes, unsigned int nr);

/* retire.c. Hooks: the sites are no detours any more. */
void xk_detours_retire(struct xk_live_site **sites, unsigned int nr);
void xk_detours_reclaim(void);
void xk_detours_module_going(const struct module *module);
/* Waits until no stub is in use. */
void xk_detours_exit(void);

extern const struct xk_backend xk_backend_detour;

#endif /* _XK_DETOUR_H */
