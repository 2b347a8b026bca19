/* SPDX-License-Identifier: GPL-2.0-only */
/* Recordings of user space: record.c. */
#ifndef _XK_SCHED_CONTROL_RECORD_H
#define _XK_SCHED_CONTROL_RECORD_H

#include <linux/fs.h>

#include "uapi/xk_sched.h"

struct xk_error;

/* All may sleep. The descriptor has the recording until it is closed. */
int xk_record_start(struct file *file, const struct xk_sched_recording *request,
		    struct xk_error *error);
int xk_record_stop(struct file *file, struct xk_sched_recording *request, struct xk_error *error);
ssize_t xk_record_read(struct file *file, char __user *buffer, size_t size, loff_t *at);
void xk_record_release(struct file *file);

#endif /* _XK_SCHED_CONTROL_RECORD_H */
