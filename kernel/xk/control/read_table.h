/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads and checks the table of a load: read_table.c. */
#ifndef _XK_READ_TABLE_H
#define _XK_READ_TABLE_H

struct xk_error;
struct xk_load;
struct xk_request;

/* Whatever it returns, xk_request_free() takes it. */
int xk_request_read(struct xk_request *request, const struct xk_load *load,
		    struct xk_error *error);
void xk_request_free(struct xk_request *request);

#endif /* _XK_READ_TABLE_H */
