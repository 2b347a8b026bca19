/* SPDX-License-Identifier: GPL-2.0-only */
/* The device /dev/xk: device.c. */
#ifndef _XK_DEVICE_H
#define _XK_DEVICE_H

#define XK_VERSION_STRING "0.1.0"

/* Create and remove the device. xk_device_init() returns 0 or an error. May sleep. */
int xk_device_init(void);
void xk_device_exit(void);

#endif /* _XK_DEVICE_H */
