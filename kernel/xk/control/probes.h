/* SPDX-License-Identifier: GPL-2.0-only */
/* The requests of /dev/xk about probes: probes.c. */
#ifndef _XK_CONTROL_PROBES_H
#define _XK_CONTROL_PROBES_H

#include <linux/compiler_attributes.h>

struct file;

/* Each copies its request from user space and its result back. Returns 0 or an error. */
long xk_ioctl_probe_attach(struct file *file, void __user *arg);
long xk_ioctl_probe_detach(struct file *file, void __user *arg);
long xk_ioctl_probe_lease(struct file *file, void __user *arg);
long xk_ioctl_probe_info(void __user *arg);
long xk_ioctl_probe_places(void __user *arg);

#endif /* _XK_CONTROL_PROBES_H */
