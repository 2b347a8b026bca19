// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows of one tune side by side. Where a guard (guard.c) would have to stand inside
 * another window of the same tune, none is needed while a jump of ours is there: no
 * instruction begins inside, and no probe on a jump becomes one itself. The one window
 * leans on the other, then: it has its jump only while the other has. Numbers in
 * instructions need their guards all the time: they give way to a window just before
 * them, if that site has nothing but a window.
 */
#include <linux/kernel.h>
#include <linux/string.h>

#include "stubs.h"
#include "xk.h"

/* Sites that wait have no address yet, but the same function. */
static unsigned long window_of(const struct xk_live_site *other, const struct xk_live_site *site)
{
	return site->place.function + other->offset - other->window_lead;
}

/* The site of the tune in whose window the address would be. */
static const struct xk_live_site *other_at(const struct xk_live_site *site, unsigned long address)
{
	const struct xk_tune *tune = site->tune;
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++) {
		const struct xk_live_site *other = &tune->sites[i];

		if (other != site && !other->in_data &&
		    address - window_of(other, site) < other->window &&
		    !strcmp(other->place.symbol, site->place.symbol) &&
		    !strcmp(other->place.module, site->place.module))
			return other;
	}
	return NULL;
}

unsigned long xk_neighbour_at(const struct xk_live_site *site, unsigned long address)
{
	const struct xk_live_site *other = other_at(site, address);

	return other && !other->patch ? window_of(other, site) : 0;
}

bool xk_is_left_to_detour(const struct xk_live_site *site, unsigned long address)
{
	const struct xk_live_site *other = other_at(site, address);

	return site->tune->detours && other && !other->nr_patches;
}

static bool leans_on(const struct xk_stub *stub, unsigned long window)
{
	unsigned int i;

	for (i = 0; i < stub->nr_supports; i++)
		if (stub->supports[i] == window)
			return true;
	return false;
}

const char *xk_lean_on(struct xk_stub *stub, unsigned long window)
{
	if (leans_on(stub, window))
		return NULL;
	if (stub->nr_supports == ARRAY_SIZE(stub->supports))
		return "too many other windows around it";
	stub->supports[stub->nr_supports++] = window;
	return NULL;
}

static bool is_jump_at(unsigned long window)
{
	struct xk_stub *stub;

	for (stub = xk_stub_next(NULL); stub; stub = xk_stub_next(stub))
		if (stub->window.address == window && !stub->dying &&
		    (stub->armed || stub->chosen))
			return true;
	return false;
}

bool xk_is_supported(const struct xk_stub *stub)
{
	unsigned int i;

	for (i = 0; i < stub->nr_supports; i++)
		if (!is_jump_at(stub->supports[i]))
			return false;
	return true;
}

bool xk_is_support(const struct xk_stub *stub)
{
	struct xk_stub *other;

	for (other = xk_stub_next(NULL); other; other = xk_stub_next(other))
		if (other->armed && !other->chosen && leans_on(other, stub->window.address))
			return true;
	return false;
}
