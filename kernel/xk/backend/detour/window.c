// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether a site can be a detour. The analysis checks the window against the whole image. This file
 * repeats what can be checked with one function and its instructions.
 */
#include <linux/kallsyms.h>
#include <linux/string.h>

#include "backend/detour/detour.h"
#include "backend/detour/stub_code.h"
#include "backend/guard.h"
#include "backend/window.h"
#include "core/conflict.h"
#include "text/changes_code.h"
#include "text/internal.h"
#include "text/symbol.h"

static const char *find_fixup(const struct xk_window *window)
{
	unsigned int i;

	for (i = 0; i < window->nr; i++)
		if (xk_may_fault(window->address + window->insns[i].offset))
			return "an access to memory that may fault";
	return NULL;
}

/* Sites of the same tune may have no address yet, so compare functions and offsets. */
static bool has_neighbour(const struct xk_live_site *site)
{
	const struct xk_tune *tune = site->tune;
	u32 start = site->offset - site->window_lead;
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++) {
		const struct xk_live_site *other = &tune->sites[i];

		if (other != site && !other->in_data && other->offset >= start &&
		    other->offset < start + site->window &&
		    !strcmp(other->place.symbol, site->place.symbol) &&
		    !strcmp(other->place.module, site->place.module))
			return true;
	}
	return false;
}

static const char *check_window(const struct xk_live_site *site, const struct xk_window *window,
				const u8 *text)
{
	const char *why;

	if (window->len != site->window)
		return "the window differs from the analysed one";
	if (has_neighbour(site))
		return "another site of this tune is in the window";
	why = find_fixup(window);
	if (!why)
		why = xk_ask_kprobes(window);
	if (!why)
		why = xk_branch_into(site, window, text);
	return why;
}

/* Length of the function and the padding after it, up to the next symbol. */
static u32 room(const struct xk_live_site *site, u32 len)
{
	char text[KSYM_SYMBOL_LEN];
	struct xk_symbol symbol;

	if (!xk_symbol_at(site->place.function, text, &symbol) || symbol.offset)
		return site->place.analysed->len;
	return min_t(unsigned long, len, symbol.size);
}

const char *xk_detour_prepare(struct xk_live_site *site, const u8 *text, u32 len)
{
	struct xk_window window;
	struct xk_stub *stub;
	const char *why;
	u32 start;

	if (xk_internal_missing())
		return "this kernel lacks what detours need: see its log";
	if (!site->window)
		return "the table has no window for this site";
	why = xk_changes_code_at(site->place.function);
	if (why)
		return why;
	start = site->offset - site->window_lead;
	why = xk_window_measure(&window, text + start, room(site, len) - start,
				site->place.function + start, site->window_lead, xk_insn_decode);
	if (!why)
		why = check_window(site, &window, text);
	if (why)
		return why;
	stub = xk_stub_get(site);
	if (!stub)
		return "all stubs are in use";
	stub->window = window;
	xk_detour_set_stub(site, stub);
	if (xk_find_conflict(site, xk_sites_overlap))
		why = "another tune has one of these instructions";
	if (!why)
		stub->guards = xk_guards_create(&stub->window, NULL, &why);
	if (!why) {
		xk_text_lock();
		why = xk_stub_build(stub);
		xk_text_unlock();
	}
	if (!why)
		return NULL;
	xk_guards_destroy(stub->guards);
	xk_stub_put(stub);
	xk_detour_set_stub(site, NULL);
	return why;
}
