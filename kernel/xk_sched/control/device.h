/* SPDX-License-Identifier: GPL-2.0-only */
/* /dev/xk_sched: device.c. */
#ifndef _XK_SCHED_DEVICE_H
#define _XK_SCHED_DEVICE_H

#define XK_SCHED_MODULE_VERSION "0.1.0"

int xk_sched_device_init(void);
void xk_sched_device_exit(void);

#endif /* _XK_SCHED_DEVICE_H */
