// SPDX-License-Identifier: GPL-2.0-only
/* The allocation of stubs. */
#include <linux/lockdep.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "base/lock.h"
#include "text/poke.h"
#include "text/stub.h"

/* Protected by xk_lock, except that a handler reads the site of the stub that called it. */
static struct xk_stub stubs[XK_STUBS];
/* Stubs from this one on were never used. */
static unsigned int nr_used;

struct xk_stub *xk_stub_get(struct xk_live_site *site)
{
	unsigned int i;

	lockdep_assert_held(&xk_lock);
	for (i = 0; i < XK_STUBS; i++) {
		if (stubs[i].site || stubs[i].retired)
			continue;
		memset(&stubs[i], 0, sizeof(stubs[i]));
		stubs[i].site = site;
		nr_used = max(nr_used, i + 1);
		return &stubs[i];
	}
	return NULL;
}

void xk_stub_put(struct xk_stub *stub)
{
	lockdep_assert_held(&xk_lock);
	stub->site = NULL;
	stub->retired = false;
}

struct xk_stub *xk_stub_next(struct xk_stub *stub)
{
	stub = stub ? stub + 1 : stubs;
	return stub < stubs + XK_STUBS ? stub : NULL;
}

unsigned long xk_stub_address(const struct xk_stub *stub)
{
	return (unsigned long)xk_stub_pool + (stub - stubs) * XK_STUB_LEN;
}

static const struct xk_stub *stub_at(unsigned long address)
{
	return &stubs[(address - (unsigned long)xk_stub_pool) / XK_STUB_LEN];
}

const struct xk_live_site *xk_stub_site(unsigned long address)
{
	return stub_at(address)->site;
}

bool xk_stub_overlaps(unsigned long address, unsigned long start, unsigned long end)
{
	const struct xk_window *window = &stub_at(address)->window;

	return window->address < end && start < window->address + window->len;
}

bool xk_jump_begins(unsigned long address)
{
	unsigned int i;

	for (i = 0; i < nr_used; i++)
		if (stubs[i].armed && stubs[i].window.address == address)
			return true;
	return false;
}

bool xk_jump_overlaps(unsigned long start, unsigned long end)
{
	unsigned int i;

	for (i = 0; i < nr_used; i++) {
		const struct xk_window *window = &stubs[i].window;

		if (stubs[i].armed && window->address < end &&
		    start < window->address + window->len)
			return true;
	}
	return false;
}

bool xk_jump_covers(unsigned long address)
{
	return xk_jump_overlaps(address, address + 1);
}

void xk_jump_of(const struct xk_stub *stub, struct xk_poke *poke)
{
	poke->address = stub->window.address;
	poke->meanwhile = xk_stub_address(stub);
	poke->len = stub->window.len;
	xk_write_jump(poke->bytes, poke->len, poke->address, poke->meanwhile);
}

bool xk_text_is(unsigned long address, const u8 *bytes, unsigned int len)
{
	u8 running[XK_MAX_WINDOW];

	return !copy_from_kernel_nofault(running, (void *)address, len) &&
	       !memcmp(running, bytes, len);
}

bool xk_jump_is_retired(unsigned long address)
{
	struct xk_poke jump;
	unsigned int i;

	for (i = 0; i < nr_used; i++) {
		if (!stubs[i].retired || !stubs[i].armed ||
		    address - stubs[i].window.address >= stubs[i].window.len)
			continue;
		xk_jump_of(&stubs[i], &jump);
		return xk_text_is(jump.address, jump.bytes, jump.len);
	}
	return false;
}
