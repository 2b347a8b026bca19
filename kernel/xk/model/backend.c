// SPDX-License-Identifier: GPL-2.0-only
/* What is asked of all backends, or told to all of them. */
#include "model/backend.h"

int xk_backends_init(void)
{
	const struct xk_backend *const *at, *const *done;
	int ret = 0;

	for (at = xk_backends; *at; at++) {
		ret = (*at)->init ? (*at)->init() : 0;
		if (ret)
			break;
	}
	for (done = xk_backends; ret && done < at; done++)
		if ((*done)->exit)
			(*done)->exit();
	return ret;
}

void xk_backends_exit(void)
{
	const struct xk_backend *const *at;

	for (at = xk_backends; *at; at++)
		if ((*at)->exit)
			(*at)->exit();
}

void xk_backends_module_going(const struct module *module)
{
	const struct xk_backend *const *at;

	for (at = xk_backends; *at; at++)
		if ((*at)->module_going)
			(*at)->module_going(module);
}

void xk_backends_reclaim(void)
{
	const struct xk_backend *const *at;

	for (at = xk_backends; *at; at++)
		if ((*at)->reclaim)
			(*at)->reclaim();
}

void xk_backends_flush(void)
{
	const struct xk_backend *const *at;

	for (at = xk_backends; *at; at++)
		if ((*at)->flush)
			(*at)->flush();
}

bool xk_backends_hold_value(const struct xk_live_site *site, unsigned long address)
{
	const struct xk_backend *const *at;

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
	const struct xk_backend *const *at;
	u32 traits = 0;

	for (at = xk_backends; *at; at++)
		if (xk_backend_wanted(*at, load_flags))
			traits |= (*at)->traits;
	return traits;
}

const struct xk_backend *xk_backend_fallback(void)
{
	const struct xk_backend *const *at;

	for (at = xk_backends; *at; at++)
		if ((*at)->prepare && !(*at)->flag)
			return *at;
	return NULL;
}

const struct xk_backend *xk_backend_of_data(void)
{
	const struct xk_backend *const *at;

	for (at = xk_backends; *at; at++)
		if ((*at)->verify)
			return *at;
	return NULL;
}
