// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether stubs use a value of their own, let a policy decide, or ask which version
 * is in force for this execution. While a transition is under way, they ask.
 */
#include <linux/err.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "backend.h"
#include "detour.h"
#include "handler.h"
#include "policy.h"
#include "stubs.h"
#include "xk.h"

enum xk_gate xk_gate_of(const struct xk_stub *stub, const struct xk_values *values)
{
	const struct xk_live_policy *policy = values->policy;

	if (!policy)
		return stub->has_value ? XK_GATE_VALUE : XK_GATE_ASK;
	return stub->can_decide && !policy->sites[stub->site->index].once ? XK_GATE_DECIDE :
									    XK_GATE_ASK;
}

/* An execution that reads it has one value, or policy, or the other. */
void xk_stub_take(struct xk_stub *stub, const struct xk_values *values)
{
	const struct xk_site_values *of_site = xk_values_at(values, stub->site);

	/* Code reads one or the other. */
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

	for (i = 0; i < nr; i++)
		for (k = 0; k < tunes[i]->nr_sites; k++)
			if (tunes[i]->sites[k].stub && tunes[i]->sites[k].phase == XK_PHASE_ARMED)
				visit(tunes[i]->sites[k].stub, pokes);
}

static void add_gate(struct xk_stub *stub, enum xk_gate gate, struct xk_pokes *pokes)
{
	if (stub->state != gate)
		xk_stub_write_gate(stub, gate, &pokes->at[pokes->nr++]);
}

static enum xk_gate gate_in_force(const struct xk_stub *stub)
{
	return xk_gate_of(stub, stub->site->tune->values);
}

static void add_ask(struct xk_stub *stub, struct xk_pokes *pokes)
{
	add_gate(stub, XK_GATE_ASK, pokes);
}

static void add_in_force(struct xk_stub *stub, struct xk_pokes *pokes)
{
	add_gate(stub, gate_in_force(stub), pokes);
}

static void asked(struct xk_stub *stub, struct xk_pokes *pokes)
{
	stub->state = XK_GATE_ASK;
}

static void settled(struct xk_stub *stub, struct xk_pokes *pokes)
{
	stub->state = gate_in_force(stub);
}

static void take_in_force(struct xk_stub *stub, struct xk_pokes *pokes)
{
	xk_stub_take(stub, stub->site->tune->values);
}

static struct xk_pokes *collect_gates(struct xk_tune *const *tunes, unsigned int nr, visit_fn visit)
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
	return collect_gates(tunes, nr, add_ask);
}

void xk_detours_asked(struct xk_tune *const *tunes, unsigned int nr)
{
	visit_stubs(tunes, nr, asked, NULL);
}

bool xk_detours_must_ask(const struct xk_tune *tune, const struct xk_values *next)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++) {
		const struct xk_live_site *site = &tune->sites[i];

		if (site->stub && site->phase == XK_PHASE_ARMED &&
		    site->stub->state != XK_GATE_ASK &&
		    site->stub->state != xk_gate_of(site->stub, next))
			return true;
	}
	return false;
}

/*
 * Where there is no memory, they go on asking. Gates that lead elsewhere already lead to
 * the right one, though with what it read before: so it is after a change in mode now.
 */
void xk_detours_settle(struct xk_tune *const *tunes, unsigned int nr)
{
	struct xk_pokes *pokes;

	visit_stubs(tunes, nr, take_in_force, NULL);
	pokes = collect_gates(tunes, nr, add_in_force);
	if (IS_ERR_OR_NULL(pokes))
		return;
	if (xk_poke_stopped(pokes, NULL, NULL))
		visit_stubs(tunes, nr, settled, NULL);
	kvfree(pokes);
}
