// SPDX-License-Identifier: GPL-2.0-only
/*
 * Short jumps. Where a window has fewer than five bytes, a jump of two bytes replaces it. It leads
 * to a relay, a jump to the slot, at most 127 bytes away. The relay is the last five bytes of
 * another window, the host. The host is a jump like any other: it serves its own instructions, with
 * or without points, and nothing executes the bytes after it but the short jump.
 *
 * The host is written in one stop, and the short jump in the next. The host stays until the short
 * jump is freed: a thread may be switched out at the relay, between both jumps, until a grace
 * period of RCU-tasks has passed. Such a thread has the stack of the short window. So the unwinder
 * must find frames from the relay in the same way as from the short window, and xk.ko takes the
 * stack for unreadable (xk_is_relay()), since the address does not say where the thread was.
 *
 * If a short jump is redirected, its relay is.
 */
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "backend/guard.h"
#include "base/lock.h"
#include "probe/attach.h"
#include "probe/relay.h"
#include "text/internal.h"
#include "text/poke.h"
#include "text/stub.h"
#include "text/unwind.h"

#define INT3 0xcc
#define HOST_LEN (2 * XK_JUMP_LEN)

/* Hosts to be removed. Protected by xk_lock. */
static LIST_HEAD(idle);

static unsigned long relay_of(const struct xk_jump *host)
{
	return host->window.address + host->window.len - XK_JUMP_LEN;
}

static const char *measure_host(const struct xk_plan *plan, struct xk_window *window,
				unsigned long start, const struct xk_probe_place *place)
{
	const struct xk_function *function = &plan->function;
	unsigned long offset = start - function->start;
	const char *why;

	if (offset >= function->len || !xk_function_begins(function, start))
		return "the room for its relay does not begin at an instruction of the function";
	why = xk_window_measure_least(window, function->text + offset, function->len - offset,
				      start, 0, HOST_LEN, xk_insn_decode);
	if (!why && window->len > place->host_window)
		why = "the room for its relay is longer than the analysed window";
	return why ?: xk_jump_check_window(plan, window);
}

static const char *check_relay(const struct xk_window *window, const struct xk_jump *host,
			       const struct module *module)
{
	unsigned long start = host->window.address, end = start + host->window.len;
	u8 bytes[XK_MAX_WINDOW];

	if (window->address < end && start < window->address + window->len)
		return "the room for its relay is not apart from the instruction";
	if (!xk_write_short_jump(bytes, window->len, window->address, relay_of(host)))
		return "the room for its relay is too far away";
	if (!xk_unwind_agrees(module, window->address, relay_of(host)))
		return "the unwinder would not find the stack at its relay";
	if (xk_claim_find(start, end))
		return "another probe's jump is in the room for its relay";
	return NULL;
}

static const char *create_host(struct xk_plan *plan, struct xk_jump *jump, struct xk_jump *host)
{
	const char *why;

	if (!xk_relay_add(relay_of(host)))
		return "no memory";
	why = xk_jump_guard(plan, host);
	if (why) {
		xk_relay_remove(relay_of(host));
		return why;
	}
	host->is_host = true;
	memset(host->relay, INT3, sizeof(host->relay));
	host->guest = jump;
	jump->host = host;
	list_add_tail(&host->list, &plan->jumps);
	return NULL;
}

const char *xk_relay_plan(struct xk_plan *plan, struct xk_jump *jump,
			  const struct xk_point *point, const struct xk_probe_place *place)
{
	struct xk_jump *host = kzalloc(sizeof(*host), GFP_KERNEL);
	const char *why;

	lockdep_assert_held(&xk_lock);
	if (!host)
		return "no memory";
	INIT_LIST_HEAD(&host->list);
	why = measure_host(plan, &host->window, jump->window.address + place->host, place);
	if (!why)
		why = check_relay(&jump->window, host, point->module);
	if (!why)
		why = create_host(plan, jump, host);
	if (why)
		kfree(host);
	return why;
}

void xk_relay_aim(const struct xk_jump *jump, const struct xk_jump_code *code)
{
	struct xk_jump *host = jump->host;

	xk_write_jump(host->relay, XK_JUMP_LEN, relay_of(host), code->slots[0] + XK_SLOT_CODE);
}

static bool is_probed(unsigned long start, unsigned int len)
{
	unsigned int i;

	for (i = 0; i < len; i++)
		if (xk_is_probed(start + i))
			return true;
	return false;
}

static bool has_relay(const struct xk_jump *host)
{
	return xk_text_is(relay_of(host), host->relay, XK_JUMP_LEN) &&
	       !is_probed(relay_of(host), XK_JUMP_LEN);
}

const char *xk_relay_why_not(const struct xk_jump *jump)
{
	const struct xk_jump *host = jump->host;

	if (!host || !xk_jump_is_armed(host))
		return host && host->why ? host->why : "there is no jump beside its relay";
	return has_relay(host) ? NULL : "another kprobe is on its relay";
}

void xk_relay_write(const struct xk_jump *jump, const struct xk_jump_code *code,
		    struct xk_poke *poke)
{
	unsigned long relay = relay_of(jump->host);

	poke->meanwhile = code->slots[0] + XK_SLOT_CODE;
	if (xk_jump_is_armed(jump)) {
		poke->address = relay;
		poke->len = XK_JUMP_LEN;
		xk_write_jump(poke->bytes, poke->len, relay, poke->meanwhile);
	} else {
		poke->address = jump->window.address;
		poke->len = jump->window.len;
		xk_write_short_jump(poke->bytes, poke->len, poke->address, relay);
	}
}

bool xk_relay_is_intact(const struct xk_jump *jump)
{
	const struct xk_window *window = &jump->window;
	u8 bytes[XK_MAX_WINDOW];

	xk_write_short_jump(bytes, window->len, window->address, relay_of(jump->host));
	return xk_text_is(window->address, bytes, window->len) &&
	       !is_probed(window->address, window->len) && has_relay(jump->host);
}

void xk_relay_forget(struct xk_jump *jump)
{
	struct xk_jump *host = jump->host;

	if (jump->is_host)
		xk_relay_remove(relay_of(jump));
	if (jump->guest)
		jump->guest->host = NULL;
	if (!host)
		return;
	host->guest = NULL;
	if (xk_jump_is_armed(host))
		xk_jump_retire_unused(host, &idle);
}

unsigned int xk_relay_retire_hosts(void)
{
	lockdep_assert_held(&xk_lock);
	return list_empty(&idle) ? 0 : xk_jumps_retire(&idle);
}
