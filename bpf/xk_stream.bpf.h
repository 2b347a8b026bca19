/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For programs of type sk_skb that answer requests on a TCP connection: kfuncs of xk.ko. The program
 * drops each packet (SK_DROP), and sends replies and passes requests on as bytes of its own:
 *
 *	struct xk_stream *stream = xk_stream_acquire(skb);
 *
 *	if (!stream)
 *		return SK_DROP;			the connection ends
 *	xk_stream_send(stream, reply, length);
 *	xk_stream_done(stream);
 *	return SK_DROP;
 *
 * Softirqs are disabled in between: no other packet is processed on this CPU. A program that has
 * lost requests calls xk_stream_release() instead, as does a run that is ended. It breaks the
 * connection: the owner of the socket reads ECONNABORTED.
 *
 * Functions that return int return 0; -EINVAL for more than 65536 bytes; -ENOBUFS if 8192 packets
 * wait already; -ENOMEM; or -EPIPE. kernel/xk/stream/stream.c
 */
#ifndef _XK_STREAM_BPF_H
#define _XK_STREAM_BPF_H

/* libbpf compares the kfuncs' types with those of xk.ko, which a declaration alone does not equal. */
struct xk_stream {
	struct sock *sk;
};

/* The connection of the packet; NULL if it is none that can be answered. */
extern struct xk_stream *xk_stream_acquire(struct __sk_buff *packet) __ksym;

/* Releases the connection. The program has lost requests, so it is broken. */
extern void xk_stream_release(struct xk_stream *stream) __ksym;

/* Releases the connection. The program has done, or passed on, all that the packet asks for. */
extern void xk_stream_done(struct xk_stream *stream) __ksym;

/* Sends bytes to the peer, after those that were sent before. */
extern int xk_stream_send(struct xk_stream *stream, const void *bytes, __u32 length) __ksym;

/* Passes bytes to the owner of the socket, which reads them as if the peer had sent them. */
extern int xk_stream_pass(struct xk_stream *stream, const void *bytes, __u32 length) __ksym;

#endif
