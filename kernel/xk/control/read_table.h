/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads and checks the table of a load request: read_table.c. */
#ifndef _XK_READ_TABLE_H
#define _XK_READ_TABLE_H

struct xk_error;
struct xk_load;
struct xk_request;

/*
 * Copies the table once, verifies its signature if required, checks it, and relocates its
 * addresses. Returns 0, or an error with its reason in `error`. In both cases xk_request_free()
 * frees it. Takes no lock of xk.ko; sleeps.
 */
int xk_request_read(struct xk_request *request, const struct xk_load *load,
		    struct xk_error *error);
void xk_request_free(struct xk_request *request);

#endif /* _XK_READ_TABLE_H */
