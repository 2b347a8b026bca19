/* SPDX-License-Identifier: GPL-2.0-only */
/* Attachments of probes, for /dev/xk: attach.c, detach.c, lease.c and info.c. */
#ifndef _XK_PROBE_ATTACH_H
#define _XK_PROBE_ATTACH_H

#include "probe/probe.h"

/* Functions for /dev/xk take xk_lock. */

/*
 * Attaches the programs with these descriptors to `places`, for the owner of `caller`. Each place
 * names one of the programs, 0 if there are none. `functions` contains the functions of
 * the request, with their bytes and without their addresses; it is consumed. Returns 0, or an error
 * with its reason in `error`. All places are probed, or none. Sleeps.
 */
int xk_probe_attach(const struct file *caller, struct xk_probe_attach *request,
		    const struct xk_probe_place *places, const s32 *programs,
		    struct xk_probed_function *functions, struct xk_error *error);

/* Frees functions of a request that is not made. */
void xk_probed_functions_free(struct xk_probed_function *functions, u32 nr);

/* Modules come and go: module.c. */
void xk_probes_module_coming(const struct module *module);
void xk_probes_module_going(const struct module *module);

/*
 * Ends an attachment of `caller`, or one that is kept. Returns 0, -ENOENT or -EPERM, with the
 * reason in `error`.
 */
int xk_probe_detach(const struct file *caller, struct xk_probe_detach *request,
		    struct xk_error *error);

/*
 * Sets the lease of an attachment, and keeps it if that is requested. Returns 0, -EINVAL (too
 * long), -ENOENT or -EPERM, with the reason in `error`.
 */
int xk_probe_lease(const struct file *caller, const struct xk_probe_lease *request,
		   struct xk_error *error);

/* The descriptor is closed: ends its attachments. */
void xk_probes_release(const struct file *caller);

/* Fill the structures. Return 0 or -ENOENT. `places` has room for request->nr. */
int xk_probe_info(struct xk_probe_info *info);
int xk_probe_places(struct xk_probe_places *request, struct xk_probe_place_info *places);

/*
 * Ends what is kept, and waits until everything is freed. All descriptors are closed. Without
 * xk_lock.
 */
void xk_probes_exit(void);

/* For the files of this folder, under xk_lock. */

/* All attachments. */
extern struct list_head xk_attachments;

/*
 * Returns the attachment with this number if `caller` may change it. Else -ENOENT or -EPERM as
 * ERR_PTR(), with the reason in `error`.
 */
struct xk_attachment *xk_attachment_find_owned(const struct file *caller, u32 id,
					       struct xk_error *error);

/*
 * Takes off its hooks in the text of a module, or all if that is NULL, and frees what only they
 * used. Returns the stops.
 */
unsigned int xk_attachment_leave(struct xk_attachment *attachment, const struct module *module);

/* Takes the hooks off, and frees the attachment. Returns the stops. */
unsigned int xk_attachment_destroy(struct xk_attachment *attachment);

/*
 * Verifies the functions of an attachment that is being made. Places in those that are the analysed
 * ones can wait. Returns 0 or -ENOMEM.
 */
int xk_probed_functions_verify(struct xk_attachment *attachment);

/* Returns the function of the request that contains the requested address, or NULL. */
struct xk_probed_function *xk_probed_function_at(const struct xk_attachment *attachment,
						 unsigned long requested);

/* A new attachment has no lease. */
void xk_attachment_lease_create(struct xk_attachment *attachment);

#endif /* _XK_PROBE_ATTACH_H */
