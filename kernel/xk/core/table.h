/* SPDX-License-Identifier: GPL-2.0-only */
/* A scope table from user space, copied to kernel memory: table.c. */
#ifndef _XK_TABLE_H
#define _XK_TABLE_H

#include <linux/types.h>

#include "uapi/xk.h"

/* The table is read from user space only once. */
struct xk_request {
	struct xk_table *table;
	size_t len;
	const s64 *values;
	struct xk_site *sites;		/* with addresses in the running kernel */
	struct xk_scope *scopes;	/* with addresses in the running kernel */
	u32 flags;			/* XK_LOAD_* */
	bool is_signed;
};

/* Returns `len` bytes of the table at `offset`, or NULL if it is not that long. */
const void *xk_request_at(const struct xk_request *request, u64 offset, u64 len);

#endif /* _XK_TABLE_H */
