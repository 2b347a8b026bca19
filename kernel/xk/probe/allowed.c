// SPDX-License-Identifier: GPL-2.0-only
/*
 * Applies the rules of kprobes (check_kprobe_address_safe() in kernel/kprobes.c) to many windows:
 * no blacklisted code, no jump label, no static call, no call of the function tracer, no lock
 * prefix that the kernel patches. A BUG() is an instruction that relocate.c refuses.
 *
 * The tables of jump labels and static calls are not sorted by address. They are copied once for
 * each request.
 */
#include <linux/jump_label.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/static_call.h>
#include <linux/string.h>

#include "backend/guard.h"
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

static bool make_room(struct xk_allowed *allowed, unsigned int nr)
{
	struct xk_reserved *at;

	at = kvmalloc_array(allowed->nr + nr, sizeof(*at), GFP_KERNEL);
	if (!at)
		return false;
	if (allowed->nr)
		memcpy(at, allowed->at, allowed->nr * sizeof(*at));
	kvfree(allowed->at);
	allowed->at = at;
	allowed->capacity = allowed->nr + nr;
	return true;
}

static void add(struct xk_allowed *allowed, unsigned long address, u8 len)
{
	if (allowed->nr < allowed->capacity)
		allowed->at[allowed->nr++] = (struct xk_reserved) { address, len };
}

/* Five bytes, although some have two: it depends on the instruction. */
static void add_jumps(struct xk_allowed *allowed, const struct jump_entry *from,
		      const struct jump_entry *to)
{
	for (; from < to; from++)
		add(allowed, jump_entry_code(from), MAX_RESERVED);
}

static void add_calls(struct xk_allowed *allowed, const struct static_call_site *from,
		      const struct static_call_site *to)
{
	for (; from < to; from++)
		add(allowed, (unsigned long)&from->addr + from->addr, MAX_RESERVED);
}

/* The prefixes are patched as long as the machine runs on one processor. */
static void add_locks(struct xk_allowed *allowed, const s32 *from, const s32 *to)
{
	for (; from < to; from++)
		add(allowed, (unsigned long)from + *from, 1);
}

static int by_address(const void *a, const void *b)
{
	const struct xk_reserved *left = a, *right = b;

	return left->address < right->address ? -1 : left->address > right->address;
}

static void sort_all(struct xk_allowed *allowed)
{
	sort(allowed->at, allowed->nr, sizeof(*allowed->at), by_address, NULL);
}

void xk_allowed_create(struct xk_allowed *allowed)
{
	const struct static_call_site *call, *last_call;
	const struct jump_entry *jump, *last_jump;
	const s32 *lock, *last_lock;

	if (!find_symbols())
		return;
	jump = (const void *)symbols[JUMPS_START];
	last_jump = (const void *)symbols[JUMPS_END];
	call = (const void *)symbols[CALLS_START];
	last_call = (const void *)symbols[CALLS_END];
	lock = (const void *)symbols[LOCKS_START];
	last_lock = (const void *)symbols[LOCKS_END];
	if (!READ_ONCE(*(const bool *)symbols[UNIPROCESSOR]))
		last_lock = lock;
	if (!make_room(allowed, (last_jump - jump) + (last_call - call) + (last_lock - lock)))
		return;
	add_jumps(allowed, jump, last_jump);
	add_calls(allowed, call, last_call);
	add_locks(allowed, lock, last_lock);
	sort_all(allowed);
	allowed->known = true;
}

void xk_allowed_free(struct xk_allowed *allowed)
{
	kvfree(allowed->at);
	memset(allowed, 0, sizeof(*allowed));
}

/* Its lock prefixes are in a list of the kernel's own: asked about in xk_allowed_window(). */
static void include_module(struct xk_allowed *allowed, const struct module *module)
{
	unsigned int jumps = module->num_jump_entries, calls = module->num_static_call_sites;

	if (!make_room(allowed, jumps + calls)) {
		allowed->known = false;
		return;
	}
	add_jumps(allowed, module->jump_entries, module->jump_entries + jumps);
	add_calls(allowed, module->static_call_sites, module->static_call_sites + calls);
	sort_all(allowed);
	allowed->module = module;
}

static bool is_text(const struct xk_function *function, const struct module *module)
{
	if (module)
		return within_module_mem_type(function->start, module, MOD_TEXT);
	return (int)xk_far(function->start, 0, 0, 0, symbols[CORE_TEXT]);
}

static const char *why_forbidden(const struct xk_function *function, const struct module *module)
{
	static_assert(__same_type(within_kprobe_blacklist, bool(unsigned long)));
	static_assert(__same_type(core_kernel_text, int(unsigned long)));

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
	if (!module && xk_is_unready(function->name))
		return "a CPU executes it before it is set up";
	if (module && allowed->known && allowed->module != module)
		include_module(allowed, module);
	if (!allowed->known)
		return NULL;
	if (!function->asked)
		function->why_forbidden = why_forbidden(function, module);
	function->asked = true;
	return function->why_forbidden;
}

static bool is_reserved(const struct xk_allowed *allowed, unsigned long start, unsigned long end)
{
	unsigned int low = 0, high = allowed->nr;

	/* The first that may reach into these bytes. */
	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (allowed->at[middle].address + MAX_RESERVED <= start)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < allowed->nr && allowed->at[low].address < end; low++)
		if (allowed->at[low].address + allowed->at[low].len > start)
			return true;
	return false;
}

const char *xk_allowed_bytes(const struct xk_allowed *allowed, unsigned long start,
			     unsigned long end)
{
	/* No table of this kernel contains the lock prefixes of modules. */
	if (allowed->module && *(const bool *)symbols[UNIPROCESSOR])
		return "the kernel may patch the lock prefixes of its module";
	if (is_reserved(allowed, start, end))
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
