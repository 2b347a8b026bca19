/* SPDX-License-Identifier: GPL-2.0-only */
/* Everything that depends on the value of a tune. core/values.c creates it; handlers read it. */
#ifndef _XK_VALUES_H
#define _XK_VALUES_H

#include <linux/rcupdate.h>
#include <linux/types.h>

#include "ops/native.h"

struct xk_live_policy;
struct xk_policy_cpu;
struct xk_settling;
struct xk_values;

/* The part of a version that belongs to one site. */
struct xk_site_values {
	const struct xk_values *of;		/* the version that contains this */
	u64 constants[XK_NATIVE_CONSTANTS];	/* for native code */
	u64 ivs[XK_MAX_IVS];		/* for the interpreter */
	struct xk_policy_cpu __percpu *decided;	/* the policy's state for this site */
};

/*
 * A version: everything that depends on the value of a tune, for all its sites. One pointer store
 * replaces the whole version, so no execution of a site mixes two values. It is freed when no
 * handler can use it any more.
 */
struct xk_values {
	/*
	 * The threads that still use the previous version; NULL if there are none. See version.c.
	 */
	const struct xk_settling *settling;
	struct xk_values *before;	/* valid only while `settling` is set */
	struct xk_live_policy *policy;	/* chooses; `value` is the value beneath; or NULL */
	struct rcu_head rcu;
	bool in_stubs;			/* code in stubs may hold a pointer into it */
	s64 value;
	unsigned int nr_sites;
	struct xk_site_values sites[] __counted_by(nr_sites);
};

#endif /* _XK_VALUES_H */
