/* SPDX-License-Identifier: GPL-2.0-only */
/* Tunes: a constant, its sites, and the version of its value that is in force. */
#ifndef _XK_TUNE_H
#define _XK_TUNE_H

#include <linux/list.h>
#include <linux/sched.h>
#include <linux/types.h>

#include "base/error.h"
#include "base/lock.h"
#include "model/place.h"
#include "model/site.h"
#include "model/values.h"
#include "uapi/xk.h"

struct file;
struct xk_live_transition;

/* Where a thread may hold a value that depends on the constant. */
struct xk_live_scope {
	struct xk_place place;
	enum xk_phase phase;		/* READY: it counts */
	unsigned int nr_ranges;
	struct xk_range *ranges;
};

struct xk_tune {
	struct list_head list;
	u32 id;
	char name[XK_NAME_LEN];
	s64 default_value;
	s64 min;			/* proved range; min > max: there is none */
	s64 max;
	s64 *compiled;			/* accepted besides, strictly ascending */
	unsigned int nr_compiled;
	u32 load_flags;			/* which backends may be used: XK_LOAD_* */
	u32 traits;			/* of these together: XK_BACKEND_* */
	struct xk_values *values;	/* read by handlers */
	struct xk_values *other;	/* in a transition: the version that is not `values` */
	struct xk_live_policy *policy;	/* for the next transition that asks for one, or NULL */
	struct xk_live_transition *transition;	/* in which it is, or NULL */
	bool leaves;			/* it is unloaded when that is done */
	enum xk_mode least_mode;	/* a signature covers no weaker one */
	enum xk_mode mode;		/* of the last one; how it will be unloaded */
	bool doomed;			/* to be unloaded, when its transition is over */
	struct file *owner;		/* NULL when detached */
	pid_t owner_pid;
	u64 loaded_at;			/* boot time */
	u64 lease_end;			/* boot time; 0: none */
	unsigned int nr_ignored;
	struct task_struct *ignored[XK_MAX_IGNORED];	/* ignore.c */
	unsigned int nr_scopes;
	struct xk_live_scope *scopes;
	unsigned int nr_sites;
	struct xk_live_site sites[] __counted_by(nr_sites);
};

/* Under xk_lock. */
extern struct list_head xk_tunes;

struct xk_tune *xk_tune_find(u32 id);

/* The same for `caller`, or -ENOENT, -EPERM: a tune with a living owner is nobody else's. */
struct xk_tune *xk_tune_find_owned(struct file *caller, u32 id, struct xk_error *error);

bool xk_tune_accepts(const struct xk_tune *tune, s64 value);

#endif /* _XK_TUNE_H */
