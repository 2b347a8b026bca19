// SPDX-License-Identifier: GPL-2.0-only
/*
 * The benchmark of transitions compares xk with this livepatch of tcp_sendmsg(). Every sender of a
 * TCP flow runs in this function, and sleeps in its callees. The replacement does the same, but
 * with another subclass of the lock, which makes a difference only to lockdep.
 */
#include <linux/livepatch.h>
#include <linux/module.h>
#include <net/sock.h>
#include <net/tcp.h>

/* Shows that the replacement runs. */
static unsigned long calls;
module_param(calls, ulong, 0400);

static int livepatch_tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)
{
	int ret;

	WRITE_ONCE(calls, calls + 1);
	lock_sock_nested(sk, SINGLE_DEPTH_NESTING);
	ret = tcp_sendmsg_locked(sk, msg, size);
	release_sock(sk);
	return ret;
}

static struct klp_func funcs[] = {
	{
		.old_name = "tcp_sendmsg",
		.new_func = livepatch_tcp_sendmsg,
	}, {}
};

static struct klp_object objects[] = {
	{
		.funcs = funcs,		/* of vmlinux */
	}, {}
};

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = objects,
};

static int __init livepatch_init(void)
{
	return klp_enable_patch(&patch);
}

static void __exit livepatch_exit(void)
{
}

module_init(livepatch_init);
module_exit(livepatch_exit);

MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
MODULE_DESCRIPTION("A livepatch, for comparison");
