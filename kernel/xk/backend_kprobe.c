// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kprobe backend: exported interfaces only. A site before an instruction
 * becomes a jump where kprobes can optimise it, and stays a breakpoint where
 * they cannot; a site behind an instruction, or instead of it, is always one. The kernel
 * puts the original bytes of a jump back some grace periods after the last update has run.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "backend.h"
#include "handler.h"
#include "xk.h"

#define INT3 0xcc
#define JMP32 0xe9

/* The optimiser restores a jump asynchronously; it needs a few grace periods. */
#define RESTORE_TIMEOUT (5 * HZ)

static struct xk_live_site *to_site(struct kprobe *kprobe)
{
	return container_of(kprobe, struct xk_live_site, kprobe);
}

static int notrace before_value(struct kprobe *kprobe, struct pt_regs *regs)
{
	xk_handle(to_site(kprobe), regs, xk_run_value);
	return 0;
}

static int notrace before_code(struct kprobe *kprobe, struct pt_regs *regs)
{
	xk_handle(to_site(kprobe), regs, xk_run_code);
	return 0;
}

static int notrace before_plain(struct kprobe *kprobe, struct pt_regs *regs)
{
	xk_handle(to_site(kprobe), regs, xk_run_plain);
	return 0;
}

static const kprobe_pre_handler_t before[] = {
	[XK_NATIVE_VALUE] = before_value,
	[XK_NATIVE_CODE] = before_code,
	[XK_NATIVE_PLAIN] = before_plain,
};

static void notrace after(struct kprobe *kprobe, struct pt_regs *regs,
			  unsigned long flags)
{
	xk_handle(to_site(kprobe), regs, xk_run);
}

/* Nothing; but a probe with a post-handler is not optimised, and can set ip. */
static void notrace after_update(struct kprobe *kprobe, struct pt_regs *regs,
				 unsigned long flags)
{
}

/* Not 0: the instruction was done, and is not executed. */
static int notrace instead(struct kprobe *kprobe, struct pt_regs *regs)
{
	const struct xk_live_site *site = to_site(kprobe);

	if (xk_handle(site, regs, xk_run))
		return 0;
	regs->ip = site->address + site->insn_len;
	return 1;
}

/* A probe in a handler would end in itself. */
NOKPROBE_SYMBOL(before_value);
NOKPROBE_SYMBOL(before_code);
NOKPROBE_SYMBOL(before_plain);
NOKPROBE_SYMBOL(after);
NOKPROBE_SYMBOL(after_update);
NOKPROBE_SYMBOL(instead);

static int kprobe_prepare(struct xk_live_site *site, struct xk_error *error)
{
	site->missed += site->kprobe.nmissed;
	memset(&site->kprobe, 0, sizeof(site->kprobe));
	site->kprobe.addr = (kprobe_opcode_t *)site->address;
	switch (site->when) {
	case XK_BEFORE:
		site->kprobe.pre_handler = before[site->native.kind];
		break;
	case XK_AFTER:
		site->kprobe.post_handler = after;
		break;
	case XK_INSTEAD:
		site->kprobe.pre_handler = instead;
		site->kprobe.post_handler = after_update;
		break;
	}
	return 0;
}

static enum xk_armed_state kprobe_state(const struct xk_live_site *site)
{
	u8 byte;

	if (copy_from_kernel_nofault(&byte, (void *)site->address, 1))
		return XK_STATE_UNKNOWN;
	switch (byte) {
	case INT3:
		return XK_STATE_BREAKPOINT;
	case JMP32:
		return XK_STATE_JUMP;
	default:
		return byte == site->original[0] ? XK_STATE_DISARMED : XK_STATE_UNKNOWN;
	}
}

/* Where the kernel is about to put the original bytes back. */
struct restoring {
	struct list_head list;
	unsigned long address;
	u8 original;
	char symbol[XK_SYMBOL_LEN];
	u32 offset;
};

/* Under xk_lock; somebody waits for them without it. */
static LIST_HEAD(restoring);

static bool is_restored(const struct restoring *what)
{
	u8 byte;

	return copy_from_kernel_nofault(&byte, (void *)what->address, 1) ||
	       (byte != JMP32 && byte != INT3) || byte == what->original;
}

static void wait_restored(const struct restoring *what)
{
	unsigned long deadline = jiffies + RESTORE_TIMEOUT;

	while (!is_restored(what)) {
		if (time_after(jiffies, deadline)) {
			pr_warn("xk: %s+0x%x: still patched: another probe came here, or the kernel is slow\n",
				what->symbol, what->offset);
			return;
		}
		usleep_range(1000, 2000);
	}
}

void xk_unlock_restored(void)
{
	struct restoring *what, *next;
	LIST_HEAD(mine);

	list_splice_init(&restoring, &mine);
	mutex_unlock(&xk_lock);
	list_for_each_entry_safe(what, next, &mine, list) {
		wait_restored(what);
		kfree(what);
	}
}

/* Without memory nobody waits: the bytes come back all the same. */
static void note_restoring(const struct xk_live_site *site)
{
	struct restoring *what = kzalloc(sizeof(*what), GFP_KERNEL);

	if (!what)
		return;
	what->address = site->address;
	what->original = site->original[0];
	what->offset = site->offset;
	strscpy(what->symbol, site->place.symbol);
	list_add_tail(&what->list, &restoring);
}

static void kprobe_disarm(struct xk_live_site **sites, unsigned int nr)
{
	struct kprobe *kprobes[XK_BATCH];
	unsigned int i;

	if (WARN_ON_ONCE(nr > XK_BATCH) || !nr)
		return;
	for (i = 0; i < nr; i++)
		kprobes[i] = &sites[i]->kprobe;
	unregister_kprobes(kprobes, nr);
	for (i = 0; i < nr; i++)
		note_restoring(sites[i]);
}

static const char *registration_error(int ret)
{
	switch (ret) {
	case -EINVAL:
		return "the kernel forbids probes here (noprobe, self-patched, a BUG or not text)";
	case -EILSEQ:
		return "not the start of an instruction that can be probed";
	case -ENOENT:
		return "no symbol or code of a module that was freed";
	case -EOPNOTSUPP:
		return "kprobes cannot execute this instruction elsewhere";
	default:
		return "register_kprobe failed";
	}
}

static int arm_kprobe_at(struct xk_live_site *site, struct xk_error *error)
{
	struct xk_live_site *sites[1] = { site };
	const char *reason;
	int ret;

	ret = register_kprobe(&site->kprobe);
	if (ret)
		return xk_refuse(error, ret, "%s+0x%x: %s (error %d)", site->place.symbol,
				 site->offset, registration_error(ret), -ret);

	if ((unsigned long)site->kprobe.addr != site->address)
		reason = "kprobes place this probe elsewhere (start of a function)";
	else if (site->kprobe.ainsn.size != site->insn_len)
		reason = "the instruction here has another length";
	else if (kprobe_state(site) == XK_STATE_DISARMED)
		reason = "registered but not armed: is /sys/kernel/debug/kprobes/enabled 0?";
	else if (kprobe_state(site) == XK_STATE_UNKNOWN)
		reason = "registered but the running bytes are not its own";
	else
		return 0;

	kprobe_disarm(sites, 1);
	return xk_refuse(error, -EIO, "%s+0x%x: %s", site->place.symbol, site->offset, reason);
}

static int kprobe_arm(struct xk_live_site **sites, unsigned int nr, struct xk_error *error)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < nr && !ret; i++) {
		ret = arm_kprobe_at(sites[i], error);
		if (!ret)
			sites[i]->phase = XK_PHASE_ARMED;
	}
	return ret;
}

static void kprobe_destroy(struct xk_live_site *site)
{
}

static u64 kprobe_missed(const struct xk_live_site *site)
{
	return site->missed + READ_ONCE(site->kprobe.nmissed);
}

const struct xk_backend xk_backend_kprobe = {
	.prepare = kprobe_prepare,
	.arm = kprobe_arm,
	.disarm = kprobe_disarm,
	.destroy = kprobe_destroy,
	.state = kprobe_state,
	.missed = kprobe_missed,
};
