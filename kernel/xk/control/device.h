/* SPDX-License-Identifier: GPL-2.0-only */
/* /dev/xk; device.c. */
#ifndef _XK_DEVICE_H
#define _XK_DEVICE_H

#define XK_VERSION_STRING "0.1.0"

int xk_device_init(void);
void xk_device_exit(void);

#endif /* _XK_DEVICE_H */
