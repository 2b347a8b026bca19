/* SPDX-License-Identifier: GPL-2.0-only */
/* Parameters that other modules describe (xk_tunable.h), and what xk.ko knows of them. */
#ifndef _XK_LIVE_TUNABLE_H
#define _XK_LIVE_TUNABLE_H

#include <linux/err.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "xk_tunable.h"

struct file;
struct xk_error;
struct xk_meter_info;
struct xk_parameter_change;
struct xk_parameter_info;

/*
 * A parameter of a loaded module. It goes with the module; who calls into the module
 * holds a reference of it, and `call`, but not xk_tunables_lock: what others' code
 * waits for is not known.
 */
struct xk_live_tunable {
	struct list_head list;
	struct module *module;
	const struct xk_tunable *is;
	u32 id;			/* never given twice */
	struct mutex call;

	/*
	 * Under xk_tunables_lock. `call` is held, too, whenever a hold begins or ends,
	 * but for the end of the owner or of the module.
	 */
	bool held;		/* it has a value that somebody set, and that will go */
	struct file *owner;	/* NULL: it is to be put back */
	pid_t owner_pid;
	s64 original;		/* the value before */
	s64 ours;		/* what was set last */
	u64 lease_end;		/* boot time; 0: none */
};

struct xk_live_meter {
	struct list_head list;
	struct module *module;
	const struct xk_meter *is;
};

/* Guards both lists, in order of appearance. */
extern struct mutex xk_tunables_lock;
extern struct list_head xk_tunables;
extern struct list_head xk_meters;

/* What foreign code answers is not always an error number. */
static inline int xk_tunable_answer(int ret)
{
	return ret > 0 || ret < -MAX_ERRNO ? -EIO : ret;
}

/* tunable_find.c */
void xk_tunables_find(const struct module *module, struct list_head *parameters,
		      struct list_head *meters);
bool xk_tunable_accepts(const struct xk_tunable *tunable, s64 value);

/* tunable.c */
void xk_tunables_module_live(struct module *module);
void xk_tunables_forget(const struct module *module);
void xk_tunables_release(struct file *owner);
int xk_parameter_change(struct file *caller, struct xk_parameter_change *change,
			struct xk_error *error);
u64 xk_tunables_first_end(void);
void xk_tunables_on_timer(void);
void xk_tunables_init(void);
void xk_tunables_exit(void);

/* tunable_info.c */
int xk_parameter_info(struct file *caller, struct xk_parameter_info *info);
int xk_meter_info(struct xk_meter_info *info);

#endif /* _XK_LIVE_TUNABLE_H */
