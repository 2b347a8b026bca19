// SPDX-License-Identifier: GPL-2.0-only
/*
 * Selects the path of each stub: native code with its own copy of the value, a policy, or the
 * handler, which knows which version this execution uses. During a transition, stubs call the
 * handler.
 */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "backend/detour/detour.h"
#include "backend/detour/stub_code.h"
#include "model/run.h"
#include "policy/policy.h"
#include "text/poke.h"

enum xk_stub_path xk_stub_path_of(const struct xk_stub *stub, const struct xk_values *values)
{
	const struct xk_live_policy *policy = values->policy;

	if (!policy)
		return stub->has_native ? XK_PATH_NATIVE : XK_PATH_HANDLER;
	return stub->has_policy && !policy->sites[stub->site->index].once ? XK_PATH_POLICY :
									    XK_PATH_HANDLER;
}

/* Each execution uses either the previous value or policy, or the new one. */
void xk_stub_set_values(struct xk_stub *stub, const struct xk_values *values)
{
	const struct xk_site_values *of_site = xk_values_at(values, stub->site);

	/* Native code reads one of the two. */
	WRITE_ONCE(stub->value, of_site->constants[0]);
	WRITE_ONCE(stub->constants, of_site->constants);
	/* The block, or the value, is complete before a handler can find it. */
	smp_store_release(&stub->decided, values->policy ? of_site : NULL);
}

typedef void (*visit_fn)(struct xk_stub *stub, struct xk_pokes *pokes);

static void visit_stubs(struct xk_tune *const *tunes, unsigned int nr, visit_fn visit,
			struct xk_pokes *pokes)
{
	unsigned int i, k;

	for (i = 0; i < nr; i++) {
		for (k = 0; k < tunes[i]->nr_sites; k++) {
			const struct xk_live_site *site = &tunes[i]->sites[k];
			struct xk_stub *stub = xk_detour_stub(site);

			if (stub && site->phase == XK_PHASE_ARMED)
				visit(stub, pokes);
		}
	}
}

static void add_path(struct xk_stub *stub, enum xk_stub_path path, struct xk_pokes *pokes)
{
	if (stub->path != path)
		xk_stub_select(stub, path, &pokes->at[pokes->nr++]);
}

static enum xk_stub_path path_in_force(const struct xk_stub *stub)
{
	return xk_stub_path_of(stub, stub->site->tune->values);
}

static void add_handler(struct xk_stub *stub, struct xk_pokes *pokes)
{
	add_path(stub, XK_PATH_HANDLER, pokes);
}

static void add_in_force(struct xk_stub *stub, struct xk_pokes *pokes)
{
	add_path(stub, path_in_force(stub), pokes);
}

static void calls_handler(struct xk_stub *stub, struct xk_pokes *pokes)
{
	stub->path = XK_PATH_HANDLER;
}

static void is_settled(struct xk_stub *stub, struct xk_pokes *pokes)
{
	stub->path = path_in_force(stub);
}

static void set_in_force(struct xk_stub *stub, struct xk_pokes *pokes)
{
	xk_stub_set_values(stub, stub->site->tune->values);
}

/* Returns NULL if nothing changes, or -ENOMEM as ERR_PTR(). */
static struct xk_pokes *collect_selectors(struct xk_tune *const *tunes, unsigned int nr,
					  visit_fn visit)
{
	struct xk_pokes *pokes;
	unsigned int i, sites = 0;

	for (i = 0; i < nr; i++)
		if (xk_backend_wanted(&xk_backend_detour, tunes[i]->load_flags))
			sites += tunes[i]->nr_sites;
	if (!sites)
		return NULL;
	pokes = xk_pokes_create(sites);
	if (!pokes)
		return ERR_PTR(-ENOMEM);
	pokes->nr = 0;
	visit_stubs(tunes, nr, visit, pokes);
	if (pokes->nr)
		return pokes;
	kvfree(pokes);
	return NULL;
}

/* While a transition settles, all stubs already call their handlers. */
struct xk_text_change *xk_detours_change_text(struct xk_tune *const *tunes, unsigned int nr,
					      bool settling)
{
	struct xk_text_change *change;
	struct xk_pokes *pokes;

	if (settling)
		return NULL;
	pokes = collect_selectors(tunes, nr, add_handler);
	if (IS_ERR_OR_NULL(pokes))
		return ERR_CAST(pokes);
	change = kzalloc(sizeof(*change), GFP_KERNEL);
	if (!change) {
		kvfree(pokes);
		return ERR_PTR(-ENOMEM);
	}
	change->backend = &xk_backend_detour;
	change->pokes = pokes;
	return change;
}

void xk_detours_changed(struct xk_text_change *change, struct xk_tune *const *tunes,
			unsigned int nr)
{
	visit_stubs(tunes, nr, calls_handler, NULL);
}

void xk_detours_free_change(struct xk_text_change *change)
{
	kvfree(change->pokes);
	kfree(change);
}

/* Whether a selector leads to a path that would not use the values in force if they were `next`. */
bool xk_detours_need_stop(const struct xk_tune *tune, const struct xk_values *next)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++) {
		const struct xk_live_site *site = &tune->sites[i];
		const struct xk_stub *stub = xk_detour_stub(site);

		if (stub && site->phase == XK_PHASE_ARMED && stub->path != XK_PATH_HANDLER &&
		    stub->path != xk_stub_path_of(stub, next))
			return true;
	}
	return false;
}

/*
 * Without memory, the stubs continue to call the handler. After a change in mode now, a selector
 * that leads to another path leads to the right one; that path used the previous values until now.
 */
void xk_detours_settle(struct xk_tune *const *tunes, unsigned int nr)
{
	struct xk_pokes *pokes;

	visit_stubs(tunes, nr, set_in_force, NULL);
	pokes = collect_selectors(tunes, nr, add_in_force);
	if (IS_ERR_OR_NULL(pokes))
		return;
	if (xk_poke_stopped(pokes, NULL, NULL))
		visit_stubs(tunes, nr, is_settled, NULL);
	kvfree(pokes);
}
