/* SPDX-License-Identifier: GPL-2.0-only */
/* The detour backend: jumps to stubs. All functions need xk_lock unless said otherwise. */
#ifndef _XK_DETOUR_H
#define _XK_DETOUR_H

#include "model/backend.h"
#include "model/tune.h"
#include "text/stub.h"

/* Returns NULL if the site is not prepared or uses another backend. */
struct xk_stub *xk_detour_stub(const struct xk_live_site *site);

/* Sets the stub of the site; NULL for none. */
void xk_detour_set_stub(struct xk_live_site *site, struct xk_stub *stub);

/* window.c. Hook of the backend: prepares a stub. Returns NULL, or why there can be none. */
const char *xk_detour_prepare(struct xk_live_site *site, const u8 *text, u32 len);

/*
 * path.c. Returns the path that a stub takes if these values are in force and no transition is
 * under way.
 */
enum xk_stub_path xk_stub_path_of(const struct xk_stub *stub, const struct xk_values *values);

/* Makes the paths of the stub read these values from now on. */
void xk_stub_set_values(struct xk_stub *stub, const struct xk_values *values);

/*
 * Hooks of the backend. When a transition begins, every stub is redirected to its handler, which
 * knows which thread uses which version. When it is over, stubs that need no handler are redirected
 * to their other path.
 */

/* Whether a selector must change for `next` to come into force. */
bool xk_detours_need_stop(const struct xk_tune *tune, const struct xk_values *next);

/*
 * The change that redirects all selectors to the handler. Returns NULL if there is none, or -ENOMEM
 * as ERR_PTR().
 */
struct xk_text_change *xk_detours_change_text(struct xk_tune *const *tunes, unsigned int nr,
					      bool settling);

/* Records that all stubs call their handlers. */
void xk_detours_changed(struct xk_text_change *change, struct xk_tune *const *tunes,
			unsigned int nr);

/* Frees a change. */
void xk_detours_free_change(struct xk_text_change *change);

/*
 * Redirects the selectors to the paths of the version in force, in a stop. Without memory, the
 * stubs continue to call their handlers.
 */
void xk_detours_settle(struct xk_tune *const *tunes, unsigned int nr);

/* retire.c. Hooks: the sites are detours no longer. */
void xk_detours_retire(struct xk_live_site **sites, unsigned int nr);

/* Frees retired stubs, if possible. Stops the machine. */
void xk_detours_reclaim(void);

/* The text of `module` is about to be freed: forgets the jumps of retired stubs in it. */
void xk_detours_module_going(const struct module *module);
/* Waits until no stub is in use. Without xk_lock; sleeps. */
void xk_detours_exit(void);

extern const struct xk_backend xk_backend_detour;

#endif /* _XK_DETOUR_H */
