// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether stubs use a value of their own, or ask which version is in force for this
 * execution. While a transition is under way, they ask.
 */
#include <linux/err.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "backend.h"
#include "detour.h"
#include "handler.h"
#include "stubs.h"
#include "xk.h"

typedef void (*visit_fn)(struct xk_stub *stub, struct xk_pokes *pokes);

static void visit_stubs(struct xk_tune *const *tunes, unsigned int nr, visit_fn visit,
			struct xk_pokes *pokes)
{
	unsigned int i, k;

	for (i = 0; i < nr; i++)
		for (k = 0; k < tunes[i]->nr_sites; k++)
			if (tunes[i]->sites[k].stub && tunes[i]->sites[k].phase == XK_PHASE_ARMED)
				visit(tunes[i]->sites[k].stub, pokes);
}

static void add(struct xk_stub *stub, enum xk_gate gate, struct xk_pokes *pokes)
{
	if (stub->has_value && stub->state != gate)
		xk_stub_write_gate(stub, gate, &pokes->at[pokes->nr++]);
}

static void add_ask(struct xk_stub *stub, struct xk_pokes *pokes)
{
	add(stub, XK_GATE_ASK, pokes);
}

static void add_value(struct xk_stub *stub, struct xk_pokes *pokes)
{
	add(stub, XK_GATE_VALUE, pokes);
}

static void asked(struct xk_stub *stub, struct xk_pokes *pokes)
{
	stub->state = XK_GATE_ASK;
}

static void valued(struct xk_stub *stub, struct xk_pokes *pokes)
{
	if (stub->has_value)
		stub->state = XK_GATE_VALUE;
}

static struct xk_pokes *collect(struct xk_tune *const *tunes, unsigned int nr, visit_fn visit)
{
	struct xk_pokes *pokes;
	unsigned int i, sites = 0;

	for (i = 0; i < nr; i++)
		sites += tunes[i]->detours ? tunes[i]->nr_sites : 0;
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

struct xk_pokes *xk_detours_ask(struct xk_tune *const *tunes, unsigned int nr)
{
	return collect(tunes, nr, add_ask);
}

void xk_detours_asked(struct xk_tune *const *tunes, unsigned int nr)
{
	visit_stubs(tunes, nr, asked, NULL);
}

/* An execution that reads it has one value or the other. */
static void take_value(struct xk_stub *stub, struct xk_pokes *pokes)
{
	const struct xk_live_site *site = stub->site;

	WRITE_ONCE(stub->value, xk_values_at(site->tune->values, site)->constants[0]);
}

/*
 * Where there is no memory, they go on asking. Gates that lead to the value
 * already may only be found after a change in mode now.
 */
void xk_detours_settle(struct xk_tune *const *tunes, unsigned int nr)
{
	struct xk_pokes *pokes;

	visit_stubs(tunes, nr, take_value, NULL);
	pokes = collect(tunes, nr, add_value);
	if (IS_ERR_OR_NULL(pokes))
		return;
	if (xk_poke_stopped(pokes, NULL, NULL))
		visit_stubs(tunes, nr, valued, NULL);
	kvfree(pokes);
}
