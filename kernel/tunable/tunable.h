/* SPDX-License-Identifier: GPL-2.0-only */
/* Parameters that other modules describe (xk_tunable.h), and what xk_tunable.ko knows of them. */
#ifndef _XK_LIVE_TUNABLE_H
#define _XK_LIVE_TUNABLE_H

#include <linux/err.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "xk_tunable.h"

/* Of this module, as in xk.ko. */
#define XK_TUNABLE_VERSION "0.1.0"

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

/* Held through this descriptor; of NULL: by nobody any more. Under xk_tunables_lock. */
static inline bool xk_tunable_is_owned(const struct xk_live_tunable *tunable,
				       const struct file *owner)
{
	return tunable->held && tunable->owner == owner;
}

/* find.c */
void xk_tunables_find(const struct module *module, struct list_head *parameters,
		      struct list_head *meters);
bool xk_tunable_accepts(const struct xk_tunable *tunable, s64 value);

/* tunable.c */
void xk_tunables_module_live(struct module *module);
void xk_tunables_forget(const struct module *module);
int xk_parameter_change(struct file *caller, struct xk_parameter_change *change,
			struct xk_error *error);
/* With `call`. */
int xk_tunable_read(const struct xk_live_tunable *tunable, s64 *value);
int xk_tunable_write(const struct xk_live_tunable *tunable, s64 value);
void xk_tunable_let_go(struct xk_live_tunable *tunable);
void xk_tunable_leave(struct xk_live_tunable *tunable);

/* lease.c */
void xk_tunables_start_timer(void);
void xk_tunables_release(struct file *owner);
int xk_tunables_lease_init(void);
void xk_tunables_lease_exit(void);

/* info.c */
int xk_parameter_info(struct file *caller, struct xk_parameter_info *info);
int xk_meter_info(struct xk_meter_info *info);

/* device.c */
int xk_tunable_device_init(void);
void xk_tunable_device_exit(void);

#endif /* _XK_LIVE_TUNABLE_H */
