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
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "guard.h"
#include "stubs.h"

/* A jump that begins so many bytes before a place may cover it. */
#define REACH (XK_JUMP_LEN - 1)

struct xk_guards {
	struct list_head list;		/* when it was destroyed */
	unsigned int nr;
	struct kprobe at[];
};

/* Until xk_guards_flush(). */
static LIST_HEAD(destroyed);

static struct xk_guards *create(unsigned int capacity)
{
	struct xk_guards *guards;

	guards = kvzalloc(struct_size(guards, at, capacity), GFP_KERNEL);
	if (guards)
		INIT_LIST_HEAD(&guards->list);
	return guards;
}

void xk_guards_destroy(struct xk_guards *guards)
{
	if (guards)
		list_add(&guards->list, &destroyed);
}

static unsigned int count_destroyed(void)
{
	const struct xk_guards *guards;
	unsigned int nr = 0;

	list_for_each_entry(guards, &destroyed, list)
		nr += guards->nr;
	return nr;
}

static void unregister_destroyed(struct kprobe **probes)
{
	struct xk_guards *guards;
	unsigned int i, nr = 0;

	list_for_each_entry(guards, &destroyed, list) {
		for (i = 0; i < guards->nr; i++) {
			if (probes)
				probes[nr++] = &guards->at[i];
			else
				unregister_kprobe(&guards->at[i]);
		}
	}
	if (probes)
		unregister_kprobes(probes, nr);
}

void xk_guards_flush(void)
{
	struct xk_guards *guards, *next;
	struct kprobe **probes;
	unsigned int nr = count_destroyed();

	if (nr) {
		/* Without memory, one after the other. */
		probes = kvmalloc_array(nr, sizeof(*probes), GFP_KERNEL);
		unregister_destroyed(probes);
		kvfree(probes);
	}
	list_for_each_entry_safe(guards, next, &destroyed, list)
		kvfree(guards);
	INIT_LIST_HEAD(&destroyed);
}

static const char *ask_about(struct kprobe *kprobe, unsigned long address)
{
	kprobe->addr = (kprobe_opcode_t *)address;
	kprobe->flags = KPROBE_FLAG_DISABLED;
	if (register_kprobe(kprobe))
		return "the kernel forbids probes here (noprobe, or it patches this code)";
	return NULL;
}

const char *xk_ask_kprobes(const struct xk_window *window)
{
	struct xk_guards *asked = create(window->nr);
	const char *why = asked ? NULL : "no memory";
	unsigned int i;

	for (i = 0; i < window->nr && !why; i++) {
		unsigned long address = window->address + window->insns[i].offset;
		struct kprobe *kprobe = &asked->at[i];

		if (window->insns[i].kind == XK_INSN_PADDING)
			break;
		why = ask_about(kprobe, address);
		if (why)
			break;
		asked->nr++;
		if ((unsigned long)kprobe->addr != address || kprobe_ftrace(kprobe))
			why = "the kernel traces functions here";
	}
	xk_guards_destroy(asked);
	return why;
}

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
	struct xk_guards *guards = create(REACH * (1 + window->nr));
	unsigned int i;

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
