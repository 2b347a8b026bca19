/* SPDX-License-Identifier: GPL-2.0-only */
/* A table as user space hands it over, in memory of our own. */
#ifndef _XK_TABLE_H
#define _XK_TABLE_H

#include <linux/types.h>

#include "uapi/xk.h"

/* Nothing of it is read from user space a second time. */
struct xk_request {
	struct xk_table *table;
	size_t len;
	const s64 *values;
	struct xk_site *sites;		/* addresses are those of the running kernel */
	struct xk_scope *scopes;	/* likewise */
	u32 flags;			/* XK_LOAD_* */
	bool is_signed;
};

/* `len` bytes of it at `offset`; NULL if there are not so many. */
const void *xk_request_at(const struct xk_request *request, u64 offset, u64 len);

#endif /* _XK_TABLE_H */
