// SPDX-License-Identifier: GPL-2.0-only
/*
 * Guard probes. Kprobes optimise a probe into a five-byte jump if no branch of the function leads
 * into these bytes. They do not see a branch that xk.ko relocated into a stub. So xk.ko registers a
 * probe wherever such a jump would begin. The probe is disabled, so it changes no byte and costs
 * nothing. It has a post-handler, so no probe at its address is optimised (optimize_kprobe() in
 * kernel/kprobes.c). Other probes work as before, as breakpoints.
 *
 * A jump over the start of a window would need copies of the instructions that it covers. Kprobes
 * do not copy our jump (can_boost() in arch/x86/kernel/kprobes/core.c), so no such jump can be
 * prepared as long as the window is a jump. A probe that was prepared earlier is found before the
 * window is armed, and gets a guard at its address.
 *
 * A kprobe executes a copy of its instruction, made at registration; an optimised kprobe, copies of
 * all instructions that its jump covers. An instruction in which a number is to change must not
 * have been copied. Guards keep jumps over it away. What the kernel prepares meanwhile to optimise
 * a probe at the address of a guard contains the number of that moment, and is never used: see
 * forget_jump(). A probe at the instruction itself is allowed: as long as it exists, the number
 * does not change.
 */
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "backend/guard.h"
#include "backend/probe_cache.h"
#include "model/backend.h"
#include "text/claim.h"
#include "text/internal.h"
#include "text/stub.h"
#include "text/symbol.h"

/* A jump that begins this many bytes before a place may cover it. */
#define REACH (XK_JUMP_LEN - 1)

struct xk_guards {
	struct list_head list;		/* in `destroyed` */
	bool of_numbers;		/* instructions changed under them */
	unsigned int nr, capacity;
	struct kprobe *at;		/* NULL until the first is registered */
};

/* Guards to be unregistered by xk_guards_flush(). Protected by xk_lock. */
static LIST_HEAD(destroyed);

static struct xk_guards *create_guards(unsigned int capacity)
{
	struct xk_guards *guards = kzalloc(sizeof(*guards), GFP_KERNEL);

	if (!guards)
		return NULL;
	INIT_LIST_HEAD(&guards->list);
	guards->capacity = capacity;
	return guards;
}

static void free_guards(struct xk_guards *guards)
{
	kvfree(guards->at);
	kfree(guards);
}

/*
 * Invalidates the code that kprobes prepared to optimise other probes at this address: its copies
 * of instructions are out of date. Kprobes have no interface for this. They make the copies when a
 * probe is registered, and use them as soon as the last post-handler at the address is gone. Before
 * that they call arch_prepared_optinsn(), an inline function of their header. So the build verifies
 * that this kernel takes a size of 0 as "not prepared". Otherwise the size is only read to report
 * the freed text to tracers (__arch_remove_optimized_kprobe()). The copies are freed as usual.
 */
static void forget_jump(unsigned long address)
{
#ifdef CONFIG_OPTPROBES
	struct arch_optimized_insn prepared = { .size = 1 }, forgotten = { .size = 0 };
	struct kprobe *kprobe;

	BUILD_BUG_ON(!arch_prepared_optinsn(&prepared));
	BUILD_BUG_ON(arch_prepared_optinsn(&forgotten));
	preempt_disable();
	kprobe = xk_kprobe_at(address);
	/* The aggregate of several probes. It stays as long as our probe is one of them. */
	if (kprobe && !list_empty(&kprobe->list))
		WRITE_ONCE(container_of(kprobe, struct optimized_kprobe, kp)->optinsn.size, 0);
	preempt_enable();
#endif
}

void xk_guards_destroy(struct xk_guards *guards)
{
	unsigned int i;

	if (!guards)
		return;
	for (i = 0; i < guards->nr && guards->of_numbers; i++)
		forget_jump((unsigned long)guards->at[i].addr);
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
		/* Without memory, unregister one after the other. */
		probes = kvmalloc_array(nr, sizeof(*probes), GFP_KERNEL);
		unregister_destroyed(probes);
		kvfree(probes);
	}
	list_for_each_entry_safe(guards, next, &destroyed, list)
		free_guards(guards);
	INIT_LIST_HEAD(&destroyed);
}

/* Empty post-handlers. Their addresses distinguish our two kinds of probes. */
static void after_asking(struct kprobe *kprobe, struct pt_regs *regs, unsigned long flags)
{
}

static int register_disabled(struct xk_guards *guards, unsigned long address,
			     kprobe_post_handler_t after)
{
	struct kprobe *kprobe;
	int ret;

	if (!guards->at)
		guards->at = kvcalloc(guards->capacity, sizeof(*guards->at), GFP_KERNEL);
	if (!guards->at)
		return -ENOMEM;
	kprobe = &guards->at[guards->nr];
	memset(kprobe, 0, sizeof(*kprobe));
	kprobe->addr = (kprobe_opcode_t *)address;
	kprobe->flags = KPROBE_FLAG_DISABLED;
	kprobe->post_handler = after;
	ret = register_kprobe(kprobe);
	if (!ret)
		guards->nr++;
	return ret;
}

static const char *ask_about(struct xk_guards *asked, unsigned long address)
{
	struct kprobe *kprobe;
	int ret;

	if (xk_probe_cache_get(address) == XK_PROBE_YES)
		return NULL;
	ret = register_disabled(asked, address, after_asking);
	if (ret == -ENOMEM)
		return "no memory";
	if (ret)
		return "the kernel forbids probes here (noprobe, or it patches this code)";
	kprobe = &asked->at[asked->nr - 1];
	if ((unsigned long)kprobe->addr != address || kprobe_ftrace(kprobe))
		return "the kernel traces functions here";
	xk_probe_cache_put(address, XK_PROBE_YES);
	return NULL;
}

const char *xk_ask_kprobes(const struct xk_window *window)
{
	struct xk_guards *asked = create_guards(window->nr);
	const char *why = asked ? NULL : "no memory";
	unsigned int i;

	for (i = 0; i < window->nr && !why; i++) {
		if (window->insns[i].kind == XK_INSN_PADDING)
			break;
		why = ask_about(asked, window->address + window->insns[i].offset);
	}
	xk_guards_destroy(asked);
	return why;
}

static void after_guarding(struct kprobe *kprobe, struct pt_regs *regs, unsigned long flags)
{
}

static const char *guard_at(struct xk_guards *guards, unsigned long address)
{
	if (xk_probe_cache_get(address) == XK_PROBE_NO)
		return NULL;
	switch (register_disabled(guards, address, after_guarding)) {
	case 0:
		return NULL;
	case -EILSEQ:		/* no instruction begins here */
	case -EINVAL:		/* no probe may be here */
	case -EOPNOTSUPP:	/* kprobes cannot execute it elsewhere */
		xk_probe_cache_put(address, XK_PROBE_NO);
		return NULL;
	case -ENOENT:		/* not text */
		return NULL;
	default:
		return "no memory for guard probes";
	}
}

static bool has_guard(const struct xk_guards *guards, unsigned long address)
{
	unsigned int i;

	for (i = 0; i < guards->nr; i++)
		if ((unsigned long)guards->at[i].addr == address)
			return true;
	return false;
}

/* Flags: the kinds of probes at an address. */
struct kinds {
	bool asks;		/* ours, unregistered soon */
	bool guards;
	bool others;
};

static void add_kind(struct kinds *kinds, const struct kprobe *kprobe)
{
	if (kprobe->post_handler == after_asking)
		kinds->asks = true;
	else if (kprobe->post_handler == after_guarding)
		kinds->guards = true;
	else
		kinds->others = true;
}

static struct kinds notrace kinds_at(unsigned long address)
{
	struct kprobe *kprobe, *member;
	struct kinds kinds = {};

	preempt_disable();
	kprobe = xk_kprobe_at(address);
	if (kprobe && list_empty(&kprobe->list))
		add_kind(&kinds, kprobe);
	else if (kprobe)
		list_for_each_entry_rcu(member, &kprobe->list, list, true)
			add_kind(&kinds, member);
	preempt_enable();
	return kinds;
}

/*
 * Whether there is a probe of someone else, or a guard of another window or number, but none of
 * these guards. Must be checked again in a stop.
 */
static bool is_unguarded(const struct xk_guards *guards, unsigned long address)
{
	struct kinds kinds = kinds_at(address);

	return (kinds.guards || kinds.others) && !has_guard(guards, address);
}

static bool is_inside(const struct xk_window *window, unsigned long address)
{
	return address - window->address < window->len;
}

/*
 * Guards against jumps that begin before `address` and cover it. `address` is the start of the
 * window, where kprobes see our jump, or the target of a branch in the stub, which kprobes cannot
 * see.
 */
static const char *guard_before(struct xk_guards *guards, const struct xk_window *window,
				unsigned long address)
{
	bool branch = address != window->address;
	const char *why = NULL;
	unsigned int i;

	for (i = 1; i <= REACH && !why; i++) {
		unsigned long at = address - i;

		/* No instruction begins in our own jump. */
		if (is_inside(window, at))
			continue;
		if (xk_backends_hold_value(NULL, at))
			/* A guard would save our immediate, or our jump, as the original bytes. */
			why = "an instruction just before it holds a value";
		else if (!branch && !is_unguarded(guards, at))
			/* A later probe would have to copy our jump, which kprobes do not do. */
			continue;
		else if (branch && (xk_jump_covers(at) || xk_claim_covers(at)))
			why = "a branch target lies just after another detour";
		else if (xk_jump_begins(at) || xk_claim_begins(at))
			why = "another detour begins just before";
		else
			why = guard_at(guards, at);
	}
	return why;
}

/* Whether someone else has a probe before the target, from which a jump may cover it. */
static bool has_probe_before(const struct xk_guards *guards, unsigned long target)
{
	unsigned int i;

	for (i = 1; i <= REACH; i++)
		if (kinds_at(target - i).others && !has_guard(guards, target - i))
			return true;
	return false;
}

static bool is_shielded(const struct xk_addresses *shielded, unsigned long target)
{
	return shielded && target >= shielded->start && target < shielded->end;
}

/* An optimised kprobe stays inside of its function (can_optimize()), so it never covers this. */
static bool begins_function(unsigned long address)
{
	char *text = kmalloc(KSYM_SYMBOL_LEN, GFP_KERNEL);
	struct xk_symbol symbol;
	bool begins;

	begins = text && xk_symbol_at(address, text, &symbol) && !symbol.offset;
	kfree(text);
	return begins;
}

static bool needs_guard(const struct xk_guards *guards, const struct xk_addresses *shielded,
			unsigned long target)
{
	if (is_shielded(shielded, target))
		return has_probe_before(guards, target);
	return !begins_function(target);
}

static bool is_branch(const struct xk_window_insn *insn)
{
	return insn->kind == XK_INSN_BRANCH || insn->kind == XK_INSN_JUMP;
}

struct xk_guards *xk_guards_create(const struct xk_window *window,
				   const struct xk_addresses *shielded, const char **why)
{
	/* Twice for the start of the window: see xk_guards_complete(). */
	struct xk_guards *guards = create_guards(REACH * (2 + window->nr));
	unsigned int i;

	*why = guards ? guard_before(guards, window, window->address) : "no memory";
	for (i = 0; i < window->nr && !*why; i++) {
		unsigned long target = window->insns[i].target;

		if (is_branch(&window->insns[i]) && needs_guard(guards, shielded, target))
			*why = guard_before(guards, window, target);
	}
	if (!*why)
		return guards;
	xk_guards_destroy(guards);
	return NULL;
}

bool xk_jump_may_come(const struct xk_guards *guards, const struct xk_window *window)
{
	unsigned int i;

	for (i = 1; i <= REACH; i++)
		if (is_unguarded(guards, window->address - i))
			return true;
	return false;
}

bool xk_jump_may_come_over_targets(const struct xk_guards *guards, const struct xk_window *window,
				   const struct xk_addresses *shielded)
{
	unsigned int i;

	for (i = 0; i < window->nr; i++)
		if (is_branch(&window->insns[i]) &&
		    is_shielded(shielded, window->insns[i].target) &&
		    has_probe_before(guards, window->insns[i].target))
			return true;
	return false;
}

/* Ignores errors: the stop refuses a window with an unguarded probe. */
void xk_guards_complete(struct xk_guards *guards, const struct xk_window *window)
{
	unsigned int i;

	for (i = 1; i <= REACH; i++)
		if (is_unguarded(guards, window->address - i))
			guard_at(guards, window->address - i);
}

bool notrace xk_window_is_guarded(const struct xk_window *window)
{
	unsigned int i;

	for (i = 0; i < window->len; i++)
		if (kinds_at(window->address + i).guards)
			return true;
	return false;
}

static const char *guard_number(struct xk_guards *guards, const struct xk_live_site *site,
				unsigned long address, struct xk_guards *asked)
{
	struct kinds kinds;
	const char *why;
	unsigned int i;

	why = ask_about(asked, address);
	if (why)
		return why;
	kinds = kinds_at(address);
	if (kinds.guards || kinds.others)
		return "another probe is there";
	for (i = 1; i <= REACH; i++) {
		/*
		 * An instruction that holds a number allows no probe at all, so it needs no guard.
		 */
		if (xk_backends_hold_value(site, address - i))
			continue;
		if (xk_jump_begins(address - i) || xk_claim_begins(address - i))
			return "a detour begins just before it";
		why = guard_at(guards, address - i);
		if (why)
			return why;
		if (kinds_at(address - i).others)
			return "another kprobe could be optimised into a jump over it";
	}
	return NULL;
}

struct xk_guards *xk_guards_of_numbers(const struct xk_live_site *site,
				       const unsigned long *addresses, unsigned int nr,
				       const char **why)
{
	struct xk_guards *guards = create_guards(REACH * nr), *asked = create_guards(nr);
	unsigned int i;

	*why = guards && asked ? NULL : "no memory";
	for (i = 0; i < nr && !*why; i++)
		*why = guard_number(guards, site, addresses[i], asked);
	xk_guards_destroy(asked);
	if (!*why) {
		guards->of_numbers = true;
		return guards;
	}
	xk_guards_destroy(guards);
	return NULL;
}

bool xk_number_is_free(unsigned long address)
{
	unsigned int i;

	if (xk_is_probed(address))
		return false;
	for (i = 1; i <= REACH; i++) {
		struct kinds kinds = kinds_at(address - i);

		if (kinds.others && !kinds.guards)
			return false;
	}
	return true;
}
