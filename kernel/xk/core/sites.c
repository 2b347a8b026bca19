// SPDX-License-Identifier: GPL-2.0-only
/*
 * All sites of a tune. When the tune is loaded, they are verified and armed, all or none. The sites
 * of a module are armed one by one when it is loaded, because a module cannot be refused.
 */
#include <linux/module.h>
#include <linux/string.h>

#include "core/conflict.h"
#include "core/scope.h"
#include "core/site.h"
#include "core/sites.h"
#include "core/values.h"
#include "model/backend.h"
#include "text/symbol.h"

static bool same_place(const struct xk_live_site *a, const struct xk_live_site *b)
{
	if (xk_data_overlap(a, b) && a->address)
		return true;
	if (a->address != b->address || !xk_whens_collide(a->when, b->when))
		return false;
	/* Waiting sites have no address yet. */
	return a->address || (a->offset == b->offset && !strcmp(a->place.symbol, b->place.symbol) &&
			      !strcmp(a->place.module, b->place.module));
}

static bool is_in(const struct xk_live_site *site, const struct module *module)
{
	return !strcmp(site->place.module, module->name);
}

/* Verifies a site, or lets it wait if its module is not loaded. */
static int verify_site_or_wait(struct xk_live_site *site, struct xk_error *error)
{
	const struct module *module = NULL;
	int ret;

	if (site->place.module[0]) {
		module = xk_module_get(site->place.module);
		if (!module) {
			site->place.function = 0;
			site->address = 0;
			site->phase = XK_PHASE_WAITING;
			return 0;
		}
	}
	ret = xk_verify_site(site, module, error);
	xk_module_put(module);
	if (!ret)
		site->phase = XK_PHASE_READY;
	return ret;
}

int xk_sites_verify(struct xk_tune *tune, struct xk_error *error)
{
	unsigned int i, k;
	int ret;

	for (i = 0; i < tune->nr_sites; i++) {
		struct xk_live_site *site = &tune->sites[i];

		ret = verify_site_or_wait(site, error);
		if (ret)
			return ret;
		for (k = 0; k < i; k++)
			if (same_place(site, &tune->sites[k]))
				return xk_refuse(error, -EINVAL,
						 "%s+0x%x: two sites at the same place",
						 site->place.symbol, site->offset);
	}
	/* Removes probes that only tested addresses, so that they do not prevent arming. */
	xk_backends_flush();
	return 0;
}

/* Sites of one backend that are ready. */
static int arm_batch(struct xk_live_site **sites, unsigned int nr, struct xk_error *error)
{
	return nr ? sites[0]->backend->arm(sites, nr, error) : 0;
}

static int arm_by(struct xk_tune *tune, const struct xk_backend *backend,
		  struct xk_error *error)
{
	struct xk_live_site *sites[XK_BATCH];
	unsigned int i, nr = 0;
	int ret = 0, batch;

	for (i = 0; i < tune->nr_sites; i++) {
		struct xk_live_site *site = &tune->sites[i];

		if (site->phase != XK_PHASE_READY || site->backend != backend)
			continue;
		if (nr == XK_BATCH) {
			batch = arm_batch(sites, nr, error);
			ret = ret ?: batch;
			nr = 0;
		}
		sites[nr++] = site;
	}
	batch = arm_batch(sites, nr, error);
	return ret ?: batch;
}

/* Whether a site that this backend cannot arm may use the fallback backend. */
static bool may_fall_back(const struct xk_tune *tune, const struct xk_backend *backend)
{
	return backend->flag && !(tune->load_flags & backend->only);
}

static int fall_back(struct xk_tune *tune, const struct xk_backend *backend,
		     struct xk_error *error)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < tune->nr_sites && !ret; i++)
		if (tune->sites[i].phase == XK_PHASE_READY && tune->sites[i].backend == backend)
			ret = xk_site_fall_back(&tune->sites[i], error);
	return ret;
}

static int arm_all(struct xk_tune *tune, struct xk_error *error)
{
	const struct xk_backend **at;
	int ret;

	for (at = xk_backends; *at; at++) {
		ret = arm_by(tune, *at, error);
		if (ret && may_fall_back(tune, *at) && !((*at)->traits & XK_BACKEND_MUST_ARM))
			ret = fall_back(tune, *at, error);
		if (ret)
			return ret;
	}
	return 0;
}

int xk_sites_arm(struct xk_tune *tune, struct xk_error *error)
{
	unsigned int i;
	int ret;

	lockdep_assert_held(&xk_lock);
	ret = arm_all(tune, error);
	if (ret) {
		xk_sites_disarm(tune);
		return ret;
	}
	/* vmlinux is not loaded again. */
	for (i = 0; i < tune->nr_sites; i++)
		if (!tune->sites[i].place.module[0])
			xk_site_free_source(&tune->sites[i]);
	return 0;
}

static int arm_one(struct xk_live_site *site, struct xk_error *error)
{
	int ret = arm_batch(&site, 1, error);

	if (!ret || !may_fall_back(site->tune, site->backend))
		return ret;
	return xk_site_fall_back(site, error) ?: arm_batch(&site, 1, error);
}

/* Disarms the sites of `module`, or all sites if it is NULL. */
static void disarm_sites(struct xk_tune *tune, const struct module *module)
{
	struct xk_live_site *sites[XK_BATCH];
	unsigned int i, nr = 0;

	for (i = 0; i < tune->nr_sites; i++) {
		struct xk_live_site *site = &tune->sites[i];

		if (site->phase != XK_PHASE_ARMED || (module && !is_in(site, module)))
			continue;
		site->phase = XK_PHASE_IDLE;
		if (!site->backend->disarm)
			continue;
		/* One call for several sites of the same backend. */
		if (nr == ARRAY_SIZE(sites) || (nr && sites[0]->backend != site->backend)) {
			sites[0]->backend->disarm(sites, nr);
			nr = 0;
		}
		sites[nr++] = site;
	}
	if (nr)
		sites[0]->backend->disarm(sites, nr);
}

void xk_sites_disarm(struct xk_tune *tune)
{
	disarm_sites(tune, NULL);
}

/* A module cannot be kept from loading: the rest of the tune stays. */
static void give_up(struct xk_live_site *site, const struct xk_error *error)
{
	site->phase = XK_PHASE_BROKEN;
	strscpy(site->reason, error->text[0] ? error->text : "out of memory");
	pr_warn("xk: %s: the default is used in module %s: %s\n", site->tune->name,
		site->place.module, site->reason);
}

static void arrive(struct xk_live_site *site, const struct module *module)
{
	struct xk_error error = {};

	if (xk_verify_site(site, module, &error)) {
		give_up(site, &error);
		return;
	}
	xk_values_fill_site(site->tune, site);
	xk_backends_flush();
	site->phase = XK_PHASE_READY;
	if (arm_one(site, &error))
		give_up(site, &error);
}

void xk_sites_module_coming(struct xk_tune *tune, const struct module *module)
{
	struct xk_error error = {};
	unsigned int i;
	int ret = xk_scopes_verify_module(tune, module, &error);

	for (i = 0; i < tune->nr_sites; i++) {
		struct xk_live_site *site = &tune->sites[i];

		if (site->phase != XK_PHASE_WAITING || !is_in(site, module))
			continue;
		if (ret)
			give_up(site, &error);
		else
			arrive(site, module);
	}
}

int xk_sites_open(struct xk_tune *tune, s64 value)
{
	struct xk_error error;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < tune->nr_sites && !ret; i++)
		if (tune->sites[i].backend->open && tune->sites[i].phase == XK_PHASE_ARMED)
			ret = tune->sites[i].backend->open(&tune->sites[i], value, &error);
	return ret;
}

void xk_sites_close(struct xk_tune *tune)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++)
		if (tune->sites[i].backend->close)
			tune->sites[i].backend->close(&tune->sites[i]);
}

void xk_sites_write(struct xk_tune *tune, s64 value)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++)
		if (tune->sites[i].backend->write && tune->sites[i].phase == XK_PHASE_ARMED)
			tune->sites[i].backend->write(&tune->sites[i], value);
}

void xk_sites_await_module(struct xk_tune *tune, const struct module *module)
{
	unsigned int i;

	disarm_sites(tune, module);
	for (i = 0; i < tune->nr_sites; i++) {
		struct xk_live_site *site = &tune->sites[i];

		if (!is_in(site, module))
			continue;
		/* A site that was prepared but could not be armed may still have a stub. */
		if (site->backend->destroy)
			site->backend->destroy(site);
		site->phase = XK_PHASE_WAITING;
		site->place.function = 0;
		site->address = 0;
		site->reason[0] = '\0';
	}
}
