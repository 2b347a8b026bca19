/* SPDX-License-Identifier: GPL-2.0-only */
/* What eBPF programs may do with the TCP connection of a packet: stream.c. */
#ifndef _XK_STREAM_H
#define _XK_STREAM_H

/* Offers the kfuncs, if the kernel has what they need. Returns 0 or an error. */
int xk_stream_init(void);

#endif /* _XK_STREAM_H */
