/* SPDX-License-Identifier: GPL-2.0-only */
/* What depends on the value of a tune. Handlers read it; core/values.c makes it. */
#ifndef _XK_VALUES_H
#define _XK_VALUES_H

#include <linux/rcupdate.h>
#include <linux/types.h>

#include "ops/native.h"

struct xk_live_policy;
struct xk_policy_cpu;
struct xk_settling;
struct xk_values;

/* At one site. */
struct xk_site_values {
	const struct xk_values *of;		/* what it is a part of */
	u64 constants[XK_NATIVE_CONSTANTS];	/* of native code */
	u64 ivs[XK_MAX_IVS];		/* of the plain interpreter */
	struct xk_policy_cpu __percpu *decided;	/* by a policy */
};

/*
 * A version: everything that depends on the value of a tune, for all its sites. Replaced
 * as a whole by one pointer store, so that no execution of a site mixes two values; freed
 * when no handler can be using it.
 */
struct xk_values {
	/* While some threads still use the version from before: which; see version.c. */
	const struct xk_settling *settling;
	struct xk_values *before;	/* valid only while `settling` is set */
	struct xk_live_policy *policy;	/* decides; `value` where it does not; or NULL */
	struct rcu_head rcu;
	bool in_stubs;			/* code in stubs may hold a pointer into it */
	s64 value;
	unsigned int nr_sites;
	struct xk_site_values sites[] __counted_by(nr_sites);
};

#endif /* _XK_VALUES_H */
