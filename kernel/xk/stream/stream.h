/* SPDX-License-Identifier: GPL-2.0-only */
/* What eBPF programs may do with the TCP connection of a packet: stream.c. */
#ifndef _XK_STREAM_H
#define _XK_STREAM_H

#include <linux/types.h>

struct __sk_buff;
struct xk_stream;

/* Offers the kfuncs, if the kernel has what they need. Returns 0 or an error. */
int xk_stream_init(void);

/* kfuncs for programs of type sk_skb. */
struct xk_stream *xk_stream_acquire(struct __sk_buff *packet);
void xk_stream_release(struct xk_stream *stream);
void xk_stream_done(struct xk_stream *stream);
int xk_stream_send(struct xk_stream *stream, const void *bytes, u32 bytes__sz);
int xk_stream_pass(struct xk_stream *stream, const void *bytes, u32 bytes__sz);

#endif /* _XK_STREAM_H */
