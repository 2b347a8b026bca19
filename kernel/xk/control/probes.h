/* SPDX-License-Identifier: GPL-2.0-only */
/* The requests of /dev/xk about probes: probes.c. */
#ifndef _XK_CONTROL_PROBES_H
#define _XK_CONTROL_PROBES_H

#include <linux/compiler_attributes.h>

struct file;
struct xk_error;
struct xk_probe_attach;
struct xk_probed_function;

/* Each copies its request from user space and its result back. Returns 0 or an error. */
long xk_ioctl_probe_attach(struct file *file, void __user *arg);
long xk_ioctl_probe_detach(struct file *file, void __user *arg);
long xk_ioctl_probe_lease(struct file *file, void __user *arg);
long xk_ioctl_probe_info(void __user *arg);
long xk_ioctl_probe_places(void __user *arg);

/*
 * probe_functions.c: copies the functions of a request from user space. Returns NULL if there are
 * none, or an error as ERR_PTR(), with its reason in `error`.
 */
struct xk_probed_function *xk_probed_functions_read(const struct xk_probe_attach *request,
						    struct xk_error *error);

#endif /* _XK_CONTROL_PROBES_H */
