// SPDX-License-Identifier: GPL-2.0-only
/* Access to the contents of a table. */
#include <linux/overflow.h>

#include "core/table.h"

const void *xk_request_at(const struct xk_request *request, u64 offset, u64 len)
{
	u64 end;

	if (check_add_overflow(offset, len, &end) || end > request->len)
		return NULL;
	return (const void *)request->table + offset;
}
