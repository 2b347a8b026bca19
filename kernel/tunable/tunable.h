/* SPDX-License-Identifier: GPL-2.0-only */
/* The state of parameters that other modules describe (xk_tunable.h). */
#ifndef _XK_LIVE_TUNABLE_H
#define _XK_LIVE_TUNABLE_H

#include <linux/err.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "xk_tunable.h"

/* Version of this module, as in xk.ko. */
#define XK_TUNABLE_VERSION "0.1.0"

struct file;
struct xk_error;
struct xk_meter_info;
struct xk_parameter_change;
struct xk_parameter_info;

/*
 * A parameter of a loaded module. It is freed with the module. A call into the module needs a
 * reference to the module, and `call`, but not xk_tunables_lock: it is unknown what the code of
 * others waits for.
 */
struct xk_live_tunable {
	struct list_head list;
	struct module *module;
	const struct xk_tunable *is;
	u32 id;			/* never reused */
	struct mutex call;

	/*
	 * Protected by xk_tunables_lock. `call` is held, too, when a hold begins or ends, except
	 * when the owner or the module ends.
	 */
	bool held;		/* someone set its value, which will return to `original` */
	struct file *owner;	/* NULL: it is to be restored */
	pid_t owner_pid;
	s64 original;		/* the value before the hold */
	s64 ours;		/* the value that was set last */
	u64 lease_end;		/* boot time in ns; 0: no lease */
};

struct xk_live_meter {
	struct list_head list;
	struct module *module;
	const struct xk_meter *is;
};

/* Protects both lists. They are in the order of appearance. */
extern struct mutex xk_tunables_lock;
extern struct list_head xk_tunables;
extern struct list_head xk_meters;

/* Code of other modules does not always return an error number. */
static inline int xk_tunable_answer(int ret)
{
	return ret > 0 || ret < -MAX_ERRNO ? -EIO : ret;
}

/*
 * Whether it is held through this descriptor; with NULL, by no one any more. Under
 * xk_tunables_lock.
 */
static inline bool xk_tunable_is_owned(const struct xk_live_tunable *tunable,
				       const struct file *owner)
{
	return tunable->held && tunable->owner == owner;
}

/* find.c. Adds the valid descriptions of a module to the lists. Under xk_tunables_lock. */
void xk_tunables_find(const struct module *module, struct list_head *parameters,
		      struct list_head *meters);
bool xk_tunable_accepts(const struct xk_tunable *tunable, s64 value);

/* tunable.c. They take xk_tunables_lock; may sleep. */
void xk_tunables_module_live(struct module *module);
void xk_tunables_forget(const struct module *module);
int xk_parameter_change(struct file *caller, struct xk_parameter_change *change,
			struct xk_error *error);
/* With `call` held; xk_tunable_leave() releases it and the module. */
int xk_tunable_read(const struct xk_live_tunable *tunable, s64 *value);
int xk_tunable_write(const struct xk_live_tunable *tunable, s64 value);
void xk_tunable_let_go(struct xk_live_tunable *tunable);
void xk_tunable_leave(struct xk_live_tunable *tunable);

/* lease.c. xk_tunables_release() and xk_tunables_lease_exit() wait for setters. */
void xk_tunables_start_timer(void);
void xk_tunables_release(struct file *owner);
int xk_tunables_lease_init(void);
void xk_tunables_lease_exit(void);

/* info.c. Return 0 or an error; call the getter of the module. */
int xk_parameter_info(struct file *caller, struct xk_parameter_info *info);
int xk_meter_info(struct xk_meter_info *info);

/* device.c */
int xk_tunable_device_init(void);
void xk_tunable_device_exit(void);

#endif /* _XK_LIVE_TUNABLE_H */
