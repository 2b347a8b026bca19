// SPDX-License-Identifier: GPL-2.0-only
/* The list of tunes: look-up by number, and the test of a value. */
#include <linux/bsearch.h>
#include <linux/err.h>
#include <linux/lockdep.h>

#include "model/tune.h"

LIST_HEAD(xk_tunes);

struct xk_tune *xk_tune_find(u32 id)
{
	struct xk_tune *tune;

	lockdep_assert_held(&xk_lock);
	list_for_each_entry(tune, &xk_tunes, list)
		if (tune->id == id)
			return tune;
	return NULL;
}

struct xk_tune *xk_tune_find_owned(struct file *caller, u32 id, struct xk_error *error)
{
	struct xk_tune *tune = xk_tune_find(id);

	if (!tune) {
		xk_refuse(error, -ENOENT, "no tune has the number %u", id);
		return ERR_PTR(-ENOENT);
	}
	if (tune->owner && tune->owner != caller) {
		xk_refuse(error, -EPERM, "%s: tune %u belongs to process %d", tune->name, id,
			  tune->owner_pid);
		return ERR_PTR(-EPERM);
	}
	return tune;
}

static __always_inline int compare_values(const void *key, const void *element)
{
	s64 a = *(const s64 *)key, b = *(const s64 *)element;

	return a < b ? -1 : a > b;
}

/* Policies call this, too. The search is inlined because bsearch() may be traced. */
bool xk_tune_accepts(const struct xk_tune *tune, s64 value)
{
	return (value >= tune->min && value <= tune->max) ||
	       __inline_bsearch(&value, tune->compiled, tune->nr_compiled,
				sizeof(*tune->compiled), compare_values);
}
