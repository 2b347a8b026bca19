// SPDX-License-Identifier: GPL-2.0-only
/*
 * The native code that handlers of a site call. It occupies one stub. Without a free stub, or if
 * text cannot be written, handlers interpret the operations.
 */
#include "core/site.h"
#include "text/internal.h"
#include "text/stub.h"

/* Returns false if there is no code. */
static bool write_code(struct xk_live_site *site)
{
	const struct xk_native_place place = {
		.function = true, .ret = (unsigned long)xk_native_return,
	};
	struct xk_emitter out = { .base = xk_stub_address(site->code_room) };
	struct xk_native_code code;

	if (!xk_native_emit(&out, &site->native, &place, &code))
		return false;
	xk_native_emit_fault(&out, &place, &code, 0);
	if (out.failed)
		return false;
	memset(out.code + out.len, 0xcc, sizeof(out.code) - out.len);
	xk_text_lock();
	xk_text_write(out.base, out.code, sizeof(out.code));
	xk_text_unlock();
	site->code = (xk_native_fn)out.base;
	return true;
}

/* The site is not armed, so no one runs the code. */
void xk_code_prepare(struct xk_live_site *site)
{
	lockdep_assert_held(&xk_lock);
	if (site->native.kind != XK_NATIVE_CODE)
		return;
	if (!xk_internal_missing()) {
		if (!site->code_room)
			site->code_room = xk_stub_get(site);
		if (site->code_room && write_code(site))
			return;
	}
	xk_code_free(site);
	site->native.kind = XK_NATIVE_PLAIN;
}

/* Handlers that called the code have returned: they run with preemption disabled. */
void xk_code_free(struct xk_live_site *site)
{
	if (site->code_room)
		xk_stub_put(site->code_room);
	site->code_room = NULL;
	site->code = NULL;
}
