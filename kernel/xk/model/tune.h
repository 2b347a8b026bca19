/* SPDX-License-Identifier: GPL-2.0-only */
/* A tune: a constant, its sites, its safe spans, and the version that is in force. */
#ifndef _XK_TUNE_H
#define _XK_TUNE_H

#include <linux/list.h>
#include <linux/sched.h>
#include <linux/types.h>

#include "base/deadline.h"
#include "base/error.h"
#include "base/lock.h"
#include "model/place.h"
#include "model/site.h"
#include "model/values.h"
#include "uapi/xk.h"

struct file;
struct xk_live_transition;

/* A safe span: code in which a thread may hold a value that depends on the constant. */
struct xk_live_scope {
	struct xk_place place;
	enum xk_phase phase;		/* READY: threads are checked for it */
	unsigned int nr_ranges;
	struct xk_range *ranges;
};

struct xk_tune {
	struct list_head list;
	u32 id;
	char name[XK_NAME_LEN];
	s64 default_value;
	s64 min;			/* proved range; empty if min > max */
	s64 max;
	s64 *compiled;			/* more accepted values, strictly ascending */
	unsigned int nr_compiled;
	u32 load_flags;			/* which backends may be used: XK_LOAD_* */
	u32 traits;			/* of all these backends together: XK_BACKEND_* */
	struct xk_values *values;	/* the version in force; read by handlers */
	struct xk_values *other;	/* during a transition: the version that is not `values` */
	struct xk_live_policy *policy;	/* policy that the next transition may use; or NULL */
	struct xk_live_transition *transition;	/* the one under way, or NULL */
	bool leaves;			/* that transition unloads the tune */
	enum xk_mode least_mode;	/* weakest mode that the signature covers */
	enum xk_mode mode;		/* of the last transition; used to unload */
	bool doomed;			/* to be unloaded, after its transition or on a retry */
	struct file *owner;		/* NULL if detached */
	pid_t owner_pid;
	u64 loaded_at;			/* boot time in ns */
	struct xk_deadline lease;
	unsigned int nr_ignored;
	struct task_struct *ignored[XK_MAX_IGNORED];	/* with references; see ignore.c */
	unsigned int nr_scopes;
	struct xk_live_scope *scopes;
	unsigned int nr_sites;
	struct xk_live_site sites[] __counted_by(nr_sites);
};

/* All loaded tunes. Protected by xk_lock. */
extern struct list_head xk_tunes;

/* Returns the tune with this number, or NULL. xk_lock is held. */
struct xk_tune *xk_tune_find(u32 id);

/*
 * Returns the tune with this number if `caller` may change it: it has no owner, or `caller` owns
 * it. Else -ENOENT or -EPERM as ERR_PTR(), with the reason in `error`. xk_lock is held.
 */
struct xk_tune *xk_tune_find_owned(struct file *caller, u32 id, struct xk_error *error);

/*
 * Whether the value is in the proved range or is a compiled one. Takes no lock; policies call it.
 */
bool xk_tune_accepts(const struct xk_tune *tune, s64 value);

#endif /* _XK_TUNE_H */
