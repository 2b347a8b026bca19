// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kprobe backend. It uses exported interfaces only. A probe before an instruction becomes a
 * jump if kprobes can optimise it, and else stays a breakpoint. A probe after an instruction, or
 * instead of it, is always a breakpoint. The kernel restores the original bytes of a jump some
 * grace periods after the last update has run.
 */
#include <linux/kprobes.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "backend/kprobe/kprobe.h"
#include "core/restore.h"
#include "text/internal.h"
#include "text/relocate.h"
#include "text/unready.h"
#include "transition/handler.h"

#define INT3 0xcc
#define JMP32 0xe9

static struct kprobe *probe_of(const struct xk_live_site *site)
{
	BUILD_BUG_ON(sizeof(struct kprobe) > sizeof(site->private));
	return (struct kprobe *)&site->private;
}

static struct xk_live_site *to_site(struct kprobe *kprobe)
{
	return container_of((struct xk_site_private *)kprobe, struct xk_live_site, private);
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

/* Empty. A probe with a post-handler is not optimised, so its pre-handler can set ip. */
static void notrace after_update(struct kprobe *kprobe, struct pt_regs *regs,
				 unsigned long flags)
{
}

/* A result other than 0 means that the instruction is not executed: the update replaced it. */
static int notrace instead(struct kprobe *kprobe, struct pt_regs *regs)
{
	const struct xk_live_site *site = to_site(kprobe);

	if (xk_handle(site, regs, xk_run))
		return 0;
	regs->ip = site->address + site->insn_len;
	return 1;
}

/* A probe in a handler would recurse. */
NOKPROBE_SYMBOL(before_value);
NOKPROBE_SYMBOL(before_code);
NOKPROBE_SYMBOL(before_plain);
NOKPROBE_SYMBOL(after);
NOKPROBE_SYMBOL(after_update);
NOKPROBE_SYMBOL(instead);

/* Zeros follow what is known of the instruction: they may be its displacement. */
static bool is_long_call(const struct xk_live_site *site)
{
	u8 bytes[MAX_INSN_SIZE] = {};

	memcpy(bytes, site->original, sizeof(site->original));
	return !xk_internal_missing() && xk_is_long_call(bytes, sizeof(bytes), xk_insn_decode);
}

static const char *kprobe_prepare(struct xk_live_site *site, const u8 *text, u32 len)
{
	struct kprobe *probe = probe_of(site);

	if (is_long_call(site))
		return "kprobes emulate a call with a prefix wrongly";
	if (xk_is_unready_at(site->address))
		return "a CPU executes it before it is set up, and a breakpoint would reset it";
	probe->addr = (kprobe_opcode_t *)site->address;
	switch (site->when) {
	case XK_BEFORE:
		probe->pre_handler = before[site->native.kind];
		break;
	case XK_AFTER:
		probe->post_handler = after;
		break;
	case XK_INSTEAD:
		probe->pre_handler = instead;
		probe->post_handler = after_update;
		break;
	}
	return NULL;
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

static void kprobe_disarm(struct xk_live_site **sites, unsigned int nr)
{
	struct kprobe *kprobes[XK_BATCH];
	unsigned int i;

	if (WARN_ON_ONCE(nr > XK_BATCH) || !nr)
		return;
	for (i = 0; i < nr; i++)
		kprobes[i] = probe_of(sites[i]);
	unregister_kprobes(kprobes, nr);
	for (i = 0; i < nr; i++) {
		sites[i]->missed += kprobes[i]->nmissed;
		kprobes[i]->nmissed = 0;
		xk_restore_note(sites[i]);
	}
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
	struct kprobe *probe = probe_of(site);
	const char *reason;
	int ret;

	ret = register_kprobe(probe);
	if (ret)
		return xk_refuse(error, ret, "%s+0x%x: %s (error %d)", site->place.symbol,
				 site->offset, registration_error(ret), -ret);

	if ((unsigned long)probe->addr != site->address)
		reason = "kprobes place this probe elsewhere (start of a function)";
	else if (probe->ainsn.size != site->insn_len)
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

static u64 kprobe_missed(const struct xk_live_site *site)
{
	return site->missed + READ_ONCE(probe_of(site)->nmissed);
}

/* How many bytes differ from the original ones, given the first running byte. */
static unsigned int patched(u8 first)
{
	if (first == INT3)
		return 1;
	return first == JMP32 ? XK_PATCH_LEN : 0;
}

static void kprobe_undo(const struct xk_live_site *site, u8 *view, unsigned long start, u32 len)
{
	unsigned long at = site->address - start;
	unsigned int i, nr;

	if (at >= len)
		return;
	nr = patched(view[at]);
	for (i = 0; i < nr && at + i < len; i++)
		view[at + i] = site->original[i];
}

const struct xk_backend xk_backend_kprobe = {
	.name = "probe",
	.prepare = kprobe_prepare,
	.arm = kprobe_arm,
	.disarm = kprobe_disarm,
	.state = kprobe_state,
	.missed = kprobe_missed,
	.undo = kprobe_undo,
};
