// SPDX-License-Identifier: GPL-2.0-only
/*
 * Applies the rules of kprobes (check_kprobe_address_safe() in kernel/kprobes.c) to many windows:
 * no blacklisted code, no jump label, no static call, no call of the function tracer, no lock
 * prefix that the kernel patches. A BUG() is an instruction that relocate.c refuses.
 *
 * The tables of jump labels and static calls are not sorted by address. Those of vmlinux never
 * change, so a sorted copy is made once. Sorting takes as long as attaching to 1,000 instructions.
 */
#include <linux/jump_label.h>
#include <linux/kprobes.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/static_call.h>
#include <linux/string.h>

#include "backend/guard.h"
#include "base/lock.h"
#include "probe/allowed.h"
#include "probe/function.h"
#include "text/internal.h"
#include "text/unready.h"

#define MAX_RESERVED 5

enum {
	JUMPS_START,
	JUMPS_END,
	CALLS_START,
	CALLS_END,
	LOCKS_START,
	LOCKS_END,
	UNIPROCESSOR,
	BLACKLIST,
	CORE_TEXT,
	TRACED,
	NR_SYMBOLS,
};

static const char *const names[NR_SYMBOLS] = {
	[JUMPS_START] = "__start___jump_table",
	[JUMPS_END] = "__stop___jump_table",
	[CALLS_START] = "__start_static_call_sites",
	[CALLS_END] = "__stop_static_call_sites",
	[LOCKS_START] = "__smp_locks",
	[LOCKS_END] = "__smp_locks_end",
	[UNIPROCESSOR] = "uniproc_patched",
	[BLACKLIST] = "within_kprobe_blacklist",
	[CORE_TEXT] = "core_kernel_text",
	[TRACED] = "ftrace_location_range",
};

static unsigned long symbols[NR_SYMBOLS];

static bool find_symbols(void)
{
	unsigned int i;

	for (i = 0; i < NR_SYMBOLS; i++) {
		if (!symbols[i])
			symbols[i] = xk_internal_find(names[i]);
		if (!symbols[i])
			return false;
	}
	return true;
}

/* What the kernel patches in vmlinux. Empty until it is first needed. Protected by xk_lock. */
static struct xk_reserved_list of_kernel;

static void free_list(struct xk_reserved_list *list)
{
	kvfree(list->at);
	memset(list, 0, sizeof(*list));
}

static bool create_list(struct xk_reserved_list *list, unsigned int capacity)
{
	list->at = kvmalloc_array(capacity, sizeof(*list->at), GFP_KERNEL);
	list->capacity = list->at ? capacity : 0;
	list->nr = 0;
	return list->at;
}

static void add(struct xk_reserved_list *list, unsigned long address, u8 len)
{
	if (list->nr < list->capacity)
		list->at[list->nr++] = (struct xk_reserved) { address, len };
}

/* Five bytes, although some have two: it depends on the instruction. */
static void add_jumps(struct xk_reserved_list *list, const struct jump_entry *from,
		      const struct jump_entry *to)
{
	for (; from < to; from++)
		add(list, jump_entry_code(from), MAX_RESERVED);
}

static void add_calls(struct xk_reserved_list *list, const struct static_call_site *from,
		      const struct static_call_site *to)
{
	for (; from < to; from++)
		add(list, (unsigned long)&from->addr + from->addr, MAX_RESERVED);
}

/* The prefixes are patched as long as the machine runs on one processor. */
static void add_locks(struct xk_reserved_list *list, const s32 *from, const s32 *to)
{
	for (; from < to; from++)
		add(list, (unsigned long)from + *from, 1);
}

static int by_address(const void *a, const void *b)
{
	const struct xk_reserved *left = a, *right = b;

	return left->address < right->address ? -1 : left->address > right->address;
}

static void sort_list(struct xk_reserved_list *list)
{
	sort(list->at, list->nr, sizeof(*list->at), by_address, NULL);
}

static bool collect_kernel(void)
{
	const struct static_call_site *call, *last_call;
	const struct jump_entry *jump, *last_jump;
	const s32 *lock, *last_lock;

	jump = (const void *)symbols[JUMPS_START];
	last_jump = (const void *)symbols[JUMPS_END];
	call = (const void *)symbols[CALLS_START];
	last_call = (const void *)symbols[CALLS_END];
	lock = (const void *)symbols[LOCKS_START];
	last_lock = (const void *)symbols[LOCKS_END];
	/* Once the machine runs on several processors, the kernel never patches them again. */
	if (!READ_ONCE(*(const bool *)symbols[UNIPROCESSOR]))
		last_lock = lock;
	if (!create_list(&of_kernel, (last_jump - jump) + (last_call - call) + (last_lock - lock)))
		return false;
	add_jumps(&of_kernel, jump, last_jump);
	add_calls(&of_kernel, call, last_call);
	add_locks(&of_kernel, lock, last_lock);
	sort_list(&of_kernel);
	return true;
}

void xk_allowed_create(struct xk_allowed *allowed)
{
	lockdep_assert_held(&xk_lock);
	allowed->known = find_symbols() && (of_kernel.at || collect_kernel());
}

void xk_allowed_free(struct xk_allowed *allowed)
{
	free_list(&allowed->of_module);
	memset(allowed, 0, sizeof(*allowed));
}

void xk_allowed_exit(void)
{
	free_list(&of_kernel);
}

/* Its lock prefixes are in a list of the kernel's own: asked about in xk_allowed_window(). */
static void include_module(struct xk_allowed *allowed, const struct module *module)
{
	unsigned int jumps = module->num_jump_entries, calls = module->num_static_call_sites;

	free_list(&allowed->of_module);
	allowed->module = module;
	if (!(jumps + calls))
		return;
	if (!create_list(&allowed->of_module, jumps + calls)) {
		allowed->known = false;
		return;
	}
	add_jumps(&allowed->of_module, module->jump_entries, module->jump_entries + jumps);
	add_calls(&allowed->of_module, module->static_call_sites,
		  module->static_call_sites + calls);
	sort_list(&allowed->of_module);
}

static bool is_text(const struct xk_function *function, const struct module *module)
{
	if (module)
		return within_module_mem_type(function->start, module, MOD_TEXT);
	return (int)xk_far(function->start, 0, 0, 0, symbols[CORE_TEXT]);
}

static const char *why_forbidden(const struct xk_allowed *allowed,
				 const struct xk_function *function, const struct module *module)
{
	static_assert(__same_type(within_kprobe_blacklist, bool(unsigned long)));
	static_assert(__same_type(core_kernel_text, int(unsigned long)));

	if (!module && xk_is_unready(function->name))
		return "a CPU executes it before it is set up";
	if (!allowed->known)
		return NULL;
	if (!is_text(function, module))
		return "it is not in the kernel's text, or is used only while it starts";
	if (strstarts(function->name, "__cfi_") || strstarts(function->name, "__pfx_"))
		return "it is padding before a function";
	/* bool: the other bits of the register are undefined. */
	if ((bool)(u8)xk_far(function->start, 0, 0, 0, symbols[BLACKLIST]))
		return "the kernel forbids probes in this function";
	return NULL;
}

const char *xk_allowed_function(struct xk_allowed *allowed, struct xk_function *function,
				const struct module *module)
{
	if (module && allowed->known && allowed->module != module)
		include_module(allowed, module);
	if (!function->asked)
		function->why_forbidden = why_forbidden(allowed, function, module);
	function->asked = true;
	return function->why_forbidden;
}

static bool is_in(const struct xk_reserved_list *list, unsigned long start, unsigned long end)
{
	unsigned int low = 0, high = list->nr;

	/* The first that may reach into these bytes. */
	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (list->at[middle].address + MAX_RESERVED <= start)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < list->nr && list->at[low].address < end; low++)
		if (list->at[low].address + list->at[low].len > start)
			return true;
	return false;
}

const char *xk_allowed_bytes(const struct xk_allowed *allowed, unsigned long start,
			     unsigned long end)
{
	/* No table of this kernel contains the lock prefixes of modules. */
	if (allowed->module && *(const bool *)symbols[UNIPROCESSOR])
		return "the kernel may patch the lock prefixes of its module";
	if (is_in(&of_kernel, start, end) || is_in(&allowed->of_module, start, end))
		return "the kernel patches these instructions";
	if (xk_far(start, end - 1, 0, 0, symbols[TRACED]))
		return "the kernel traces functions here";
	return NULL;
}

const char *xk_allowed_window(const struct xk_allowed *allowed, const struct xk_window *window)
{
	if (!allowed->known || (allowed->module && *(const bool *)symbols[UNIPROCESSOR]))
		return xk_ask_kprobes(window);
	return xk_allowed_bytes(allowed, window->address, window->address + window->len);
}
