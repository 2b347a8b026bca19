// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kprobes turn a probe into a jump of five bytes if no branch of the function leads
 * into these. A branch that was relocated is out of their sight; so is the window,
 * where the probe was registered before the window became a jump. So a probe of ours
 * is registered wherever such a jump would begin: disabled, which changes no byte and
 * costs nothing, and with a handler behind the instruction, with which no probe at
 * this address is optimised (optimize_kprobe() in kernel/kprobes.c). Other probes
 * work as before, by a breakpoint.
 */
#include <linux/kprobes.h>
#include <linux/slab.h>

#include "guard.h"
#include "stubs.h"

/* A jump that begins so many bytes before a place may cover it. */
#define REACH (XK_JUMP_LEN - 1)

struct xk_guards {
	unsigned int nr;
	struct kprobe at[];
};

static void after_nothing(struct kprobe *kprobe, struct pt_regs *regs, unsigned long flags)
{
}

static const char *guard_at(struct xk_guards *guards, unsigned long address)
{
	struct kprobe *kprobe = &guards->at[guards->nr];

	memset(kprobe, 0, sizeof(*kprobe));
	kprobe->addr = (kprobe_opcode_t *)address;
	kprobe->flags = KPROBE_FLAG_DISABLED;
	kprobe->post_handler = after_nothing;
	switch (register_kprobe(kprobe)) {
	case 0:
		guards->nr++;
		return NULL;
	case -EILSEQ:		/* no instruction begins here */
	case -EINVAL:		/* nobody may have a probe here */
	case -ENOENT:		/* no text */
	case -EOPNOTSUPP:	/* kprobes cannot execute it elsewhere */
		return NULL;
	default:
		return "no memory for probes that guard it";
	}
}

/* Against jumps that begin before `address` and cover it. */
static const char *guard_before(struct xk_guards *guards, unsigned long address)
{
	const char *why = NULL;
	unsigned int i;

	for (i = 1; i <= REACH && !why; i++) {
		/* The guard would remember our jump as the instruction there. */
		if (xk_stub_covers(address - i))
			return "a branch leads to where another detour begins";
		why = guard_at(guards, address - i);
	}
	return why;
}

struct xk_guards *xk_guards_create(const struct xk_window *window, const char **why)
{
	struct xk_guards *guards;
	unsigned int i;

	guards = kzalloc(struct_size(guards, at, REACH * (1 + window->nr)), GFP_KERNEL);
	*why = guards ? guard_before(guards, window->address) : "no memory";
	for (i = 0; i < window->nr && !*why; i++) {
		u8 kind = window->insns[i].kind;

		if (kind == XK_INSN_BRANCH || kind == XK_INSN_JUMP)
			*why = guard_before(guards, window->insns[i].target);
	}
	if (!*why)
		return guards;
	xk_guards_destroy(guards);
	return NULL;
}

void xk_guards_destroy(struct xk_guards *guards)
{
	unsigned int i;

	if (!guards)
		return;
	for (i = 0; i < guards->nr; i++)
		unregister_kprobe(&guards->at[i]);
	kfree(guards);
}
