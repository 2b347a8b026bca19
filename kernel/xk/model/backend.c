// SPDX-License-Identifier: GPL-2.0-only
/* Calls that go to every backend, and look-ups in the list of backends. */
#include <linux/cache.h>
#include <linux/errno.h>
#include <linux/init.h>

#include "model/backend.h"

const struct xk_backend *xk_backends[XK_MAX_BACKENDS + 1] __ro_after_init;

int __init xk_backends_init(const struct xk_backend *const *list)
{
	unsigned int nr;
	int ret;

	for (nr = 0; list[nr]; nr++) {
		ret = nr < XK_MAX_BACKENDS ? 0 : -E2BIG;
		if (!ret && list[nr]->init)
			ret = list[nr]->init();
		if (ret) {
			xk_backends_exit();
			return ret;
		}
		xk_backends[nr] = list[nr];
	}
	return 0;
}

void xk_backends_exit(void)
{
	const struct xk_backend **at;

	for (at = xk_backends; *at; at++)
		if ((*at)->exit)
			(*at)->exit();
}

void xk_backends_module_going(const struct module *module)
{
	const struct xk_backend **at;

	for (at = xk_backends; *at; at++)
		if ((*at)->module_going)
			(*at)->module_going(module);
}

void xk_backends_reclaim(void)
{
	const struct xk_backend **at;

	for (at = xk_backends; *at; at++)
		if ((*at)->reclaim)
			(*at)->reclaim();
}

void xk_backends_flush(void)
{
	const struct xk_backend **at;

	for (at = xk_backends; *at; at++)
		if ((*at)->flush)
			(*at)->flush();
}

bool xk_backends_hold_value(const struct xk_live_site *site, unsigned long address)
{
	const struct xk_backend **at;

	for (at = xk_backends; *at; at++)
		if ((*at)->holds_value && (*at)->holds_value(site, address))
			return true;
	return false;
}

bool xk_backend_wanted(const struct xk_backend *backend, u32 load_flags)
{
	return !backend->flag || load_flags & (backend->flag | backend->only);
}

u32 xk_backend_traits(u32 load_flags)
{
	const struct xk_backend **at;
	u32 traits = 0;

	for (at = xk_backends; *at; at++)
		if (xk_backend_wanted(*at, load_flags))
			traits |= (*at)->traits;
	return traits;
}

const struct xk_backend *xk_backend_fallback(void)
{
	const struct xk_backend **at;

	for (at = xk_backends; *at; at++)
		if ((*at)->prepare && !(*at)->flag)
			return *at;
	return NULL;
}

const struct xk_backend *xk_backend_of_data(void)
{
	const struct xk_backend **at;

	for (at = xk_backends; *at; at++)
		if ((*at)->verify)
			return *at;
	return NULL;
}
