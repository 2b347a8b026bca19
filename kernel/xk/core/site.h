/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One site: site.c and code.c. Under xk_lock. A site that was never linked may be initialised and
 * destroyed without it.
 */
#ifndef _XK_CORE_SITE_H
#define _XK_CORE_SITE_H

#include "model/backend.h"
#include "model/tune.h"

struct xk_request;

/*
 * Checks the description of a site and copies it. Returns 0, or an error with its reason in
 * `error`. In both cases xk_site_destroy() frees it.
 */
int xk_site_init(struct xk_tune *tune, unsigned int index, const struct xk_request *request,
		 struct xk_error *error);
void xk_site_destroy(struct xk_live_site *site);

/* Frees what only another verification of the site needs. */
void xk_site_free_source(struct xk_live_site *site);

/*
 * Links the site with the verified text of its function, `len` bytes: links the operations, builds
 * native code, and selects a backend. Returns 0, or -EOPNOTSUPP with its reason in `error`. May
 * sleep.
 */
int xk_site_link(struct xk_live_site *site, const u8 *text, u32 len, struct xk_error *error);

/*
 * The backend of the site could not arm it: prepares the fallback backend. Returns 0, or
 * -EOPNOTSUPP with its reason in `error`.
 */
int xk_site_fall_back(struct xk_live_site *site, struct xk_error *error);

/* The range of instructions that the site holds. */
unsigned long xk_site_start(const struct xk_live_site *site);
unsigned long xk_site_end(const struct xk_live_site *site);

/* Fills `info` with the state and the counters of the site. */
void xk_site_describe(const struct xk_live_site *site, struct xk_site_info *info);

/* Whether the default is used where the value should be in force. */
bool xk_site_ill(const struct xk_live_site *site);

/*
 * code.c. Creates and frees the native code that handlers call. Without space for it, handlers
 * interpret the operations.
 */
void xk_code_prepare(struct xk_live_site *site);
void xk_code_free(struct xk_live_site *site);

#endif /* _XK_CORE_SITE_H */
