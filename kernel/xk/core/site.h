/* SPDX-License-Identifier: GPL-2.0-only */
/* One site: site.c and code.c. Under xk_lock, but for its creation. */
#ifndef _XK_CORE_SITE_H
#define _XK_CORE_SITE_H

#include "model/backend.h"
#include "model/tune.h"

struct xk_request;

/* Whatever it returns, xk_site_destroy() is called for it. */
int xk_site_init(struct xk_tune *tune, unsigned int index, const struct xk_request *request,
		 struct xk_error *error);
void xk_site_destroy(struct xk_live_site *site);

/* What is needed to verify it once more. */
void xk_site_free_source(struct xk_live_site *site);

/* From the verified bytes of the function, `len` of them, to a handler and a backend. */
int xk_site_link(struct xk_live_site *site, const u8 *text, u32 len, struct xk_error *error);

/* The backend that it has could not arm it: the one that every site can have. */
int xk_site_fall_back(struct xk_live_site *site, struct xk_error *error);

/* The instructions that it holds. */
unsigned long xk_site_start(const struct xk_live_site *site);
unsigned long xk_site_end(const struct xk_live_site *site);

void xk_site_describe(const struct xk_live_site *site, struct xk_site_info *info);

/* The default runs where a value should be in force. */
bool xk_site_ill(const struct xk_live_site *site);

/* code.c. Native code that handlers call; without room for it, handlers interpret. */
void xk_code_prepare(struct xk_live_site *site);
void xk_code_free(struct xk_live_site *site);

#endif /* _XK_CORE_SITE_H */
