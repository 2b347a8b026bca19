// SPDX-License-Identifier: GPL-2.0-only
/*
 * kfuncs for programs of type sk_skb that answer requests of a TCP connection in the kernel. The
 * kernel lets such a program pass a packet to the owner of the socket, drop it, or turn it into
 * data for another socket. It cannot answer with more or less bytes than it received: the kernel
 * takes the length of the changed packet for what the connection has consumed. With these kfuncs,
 * the program drops each packet, and sends replies and passes requests on as bytes of its own.
 *
 * Softirqs are disabled between xk_stream_acquire() and xk_stream_done(). So no packet is
 * processed in between on this CPU, and programs may keep what they work on in memory of the CPU.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>
#include <linux/skbuff.h>
#include <linux/skmsg.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "base/compat.h"
#include "base/lock.h"
#include "stream/stream.h"
#include "text/internal.h"

#if IS_ENABLED(CONFIG_NET_SOCK_MSG) && IS_ENABLED(CONFIG_BPF_STREAM_PARSER)

/* The most bytes that one call takes. */
#define MOST_BYTES	65536

/*
 * How many packets of replies and passed requests may wait on one connection. The peer may send on
 * meanwhile, since what the program has seen counts as received: this is the only limit.
 */
#define MOST_WAITING	8192

/*
 * So many segments are sent at once at most. tcp_sendmsg_locked() looks for packets that have
 * arrived meanwhile after 16.
 */
#define MOST_SEGMENTS	8

/* The connection of the packet that a program has. One per CPU, since softirqs are disabled. */
struct xk_stream {
	struct sock *sk;	/* NULL: no program has one */
};

static DEFINE_PER_CPU(struct xk_stream, streams);

static bool is_connected(const struct sock *sk)
{
	return (1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT);
}

/* A connection that is to be aborted. */
struct broken {
	struct work_struct work;
	struct sock *sk;
};

static void abort_connection(struct work_struct *work)
{
	struct broken *broken = container_of(work, struct broken, work);

	tcp_abort(broken->sk, ECONNABORTED);
	sock_put(broken->sk);
	kfree(broken);
}

/*
 * Gives the connection up: nothing is received or sent any more, and its owner reads an error. It
 * is aborted by a worker, because that takes the lock of the socket. Without memory, its owner has
 * to close it.
 */
static void stream_break(struct sock *sk)
{
	struct broken *broken = kmalloc(sizeof(*broken), GFP_ATOMIC);

	sk->sk_shutdown = SHUTDOWN_MASK;
	if (!broken) {
		WRITE_ONCE(sk->sk_err, ECONNABORTED);
		sk_error_report(sk);
		return;
	}
	sock_hold(sk);
	broken->sk = sk;
	INIT_WORK(&broken->work, abort_connection);
	queue_work(xk_workqueue, &broken->work);
}

/*
 * Sends what has room now, and returns the number of bytes. The caller holds the spin lock of the
 * socket, which no thread owns. MPTCP and ESP in TCP send in this state, too.
 */
static u32 send_now(struct sock *sk, const void *bytes, u32 length)
{
	struct msghdr message = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec vec = { .iov_base = (void *)bytes, .iov_len = length };
	bool task_frag = sk->sk_use_task_frag;
	gfp_t allocation = sk->sk_allocation;
	/* Options of TCP take less than half of it. */
	u32 segment = tcp_sk(sk)->mss_cache / 2;
	int sent;

	if (length > MOST_SEGMENTS * segment || !sk_stream_memory_free(sk))
		return 0;
	iov_iter_kvec(&message.msg_iter, ITER_SOURCE, &vec, 1, length);
	sk->sk_allocation = GFP_ATOMIC;
	sk->sk_use_task_frag = false;
	sent = tcp_sendmsg_locked(sk, &message, length);
	sk->sk_use_task_frag = task_frag;
	sk->sk_allocation = allocation;
	return sent > 0 ? sent : 0;
}

/* Queues bytes, to be sent or to be read by the owner of the socket, in order. */
static int stream_queue(struct sock *sk, struct sk_psock *psock, const void *bytes, u32 length,
			bool ingress)
{
	struct sk_buff *skb;
	int ret;

	if (skb_queue_len_lockless(&psock->ingress_skb) >= MOST_WAITING)
		return -ENOBUFS;
	skb = alloc_skb_with_frags(0, length, 0, &ret, GFP_ATOMIC);
	if (!skb)
		return -ENOMEM;
	skb->data_len = length;
	skb->len = length;
	ret = skb_store_bits(skb, 0, bytes, length);
	if (ret)
		goto free;
	skb_bpf_set_redir(skb, sk, ingress);
	ret = -EPIPE;
	spin_lock_bh(&psock->ingress_lock);
	if (sk_psock_test_state(psock, SK_PSOCK_TX_ENABLED)) {
		skb_queue_tail(&psock->ingress_skb, skb);
		schedule_delayed_work(&psock->work, 0);
		ret = 0;
	}
	spin_unlock_bh(&psock->ingress_lock);
	if (!ret)
		return 0;
	skb_bpf_redirect_clear(skb);
free:
	kfree_skb(skb);
	return ret;
}

__bpf_kfunc_start_defs();

/*
 * The connection of the packet; NULL if it is none, is not in a sockmap, or has a protocol above
 * TCP, in which case it is broken. Softirqs are disabled until it is released.
 */
__bpf_kfunc struct xk_stream *xk_stream_acquire(struct __sk_buff *packet)
{
	struct sk_buff *skb = (struct sk_buff *)packet;
	struct sock *sk = skb->sk;
	struct xk_stream *stream;

	if (!sk || !sk_fullsock(sk) || !sk_is_tcp(sk) || skb_bpf_strparser(skb))
		return NULL;
#ifdef CONFIG_LOCKDEP
	WARN_ON_ONCE(!lockdep_sock_is_held(sk));
#endif
	if (!is_connected(sk) || sk->sk_shutdown & SEND_SHUTDOWN || !sk_psock(sk))
		return NULL;
	local_bh_disable();
	stream = this_cpu_ptr(&streams);
	/*
	 * The packet is lost. With a protocol above TCP, for example TLS, a reply would not be in
	 * that protocol.
	 */
	if (stream->sk || inet_csk(sk)->icsk_ulp_ops) {
		stream_break(sk);
		local_bh_enable();
		return NULL;
	}
	stream->sk = sk;
	return stream;
}

/* Releases the connection. The program has lost requests, so it is broken. */
__bpf_kfunc void xk_stream_release(struct xk_stream *stream)
{
	stream_break(stream->sk);
	xk_stream_done(stream);
}

/* Releases the connection. The program has done, or passed on, all that the packet asks for. */
__bpf_kfunc void xk_stream_done(struct xk_stream *stream)
{
	stream->sk = NULL;
	local_bh_enable();
}

/*
 * Sends bytes to the peer, after those that were sent before. What has no room now waits for it.
 * Returns 0; -EINVAL for more than 65536 bytes; -ENOBUFS if more than 8192 packets wait; -ENOMEM;
 * or -EPIPE if the connection ends.
 */
__bpf_kfunc int xk_stream_send(struct xk_stream *stream, const void *bytes, u32 bytes__sz)
{
	struct sock *sk = stream->sk;
	struct sk_psock *psock = sk_psock(sk);
	u32 sent = 0;

	if (!bytes__sz)
		return 0;
	if (bytes__sz > MOST_BYTES)
		return -EINVAL;
	if (!psock)
		return -EPIPE;
	/* The packets of a thread that owns the socket must not be processed in between. */
	if (!sock_owned_by_user_nocheck(sk) && skb_queue_empty_lockless(&psock->ingress_skb))
		sent = send_now(sk, bytes, bytes__sz);
	if (sent == bytes__sz)
		return 0;
	return stream_queue(sk, psock, bytes + sent, bytes__sz - sent, false);
}

/*
 * Passes bytes on to the owner of the socket, which reads them as if they had come from the peer.
 * Returns as xk_stream_send().
 */
__bpf_kfunc int xk_stream_pass(struct xk_stream *stream, const void *bytes, u32 bytes__sz)
{
	struct sk_psock *psock = sk_psock(stream->sk);

	if (!bytes__sz)
		return 0;
	if (bytes__sz > MOST_BYTES)
		return -EINVAL;
	return psock ? stream_queue(stream->sk, psock, bytes, bytes__sz, true) : -EPIPE;
}

__bpf_kfunc_end_defs();

/* Sets of a module must not have the same name. */
BTF_KFUNCS_START(stream_kfuncs)
BTF_ID_FLAGS(func, xk_stream_acquire, KF_ACQUIRE | KF_RET_NULL)
BTF_ID_FLAGS(func, xk_stream_release, KF_RELEASE)
BTF_ID_FLAGS(func, xk_stream_done, KF_RELEASE)
BTF_ID_FLAGS(func, xk_stream_send, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, xk_stream_pass, KF_TRUSTED_ARGS)
BTF_KFUNCS_END(stream_kfuncs)

static const struct btf_kfunc_id_set kfunc_set = {
	.owner = THIS_MODULE,
	.set = &stream_kfuncs,
};

int __init xk_stream_init(void)
{
	/*
	 * With this function, the kernel counts only what came from the peer as consumed when the
	 * owner reads. Without it, what xk_stream_pass() adds is counted twice.
	 */
	if (!xk_internal_find("__sk_msg_recvmsg")) {
		pr_info("xk: no kfuncs for streams: this kernel lacks __sk_msg_recvmsg()\n");
		return 0;
	}
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_SK_SKB, &kfunc_set);
}

#else

int __init xk_stream_init(void)
{
	return 0;
}

#endif
