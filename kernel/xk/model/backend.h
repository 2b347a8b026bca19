/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How control reaches an update. A backend owns the bytes at a site. It does not know user
 * space, nor which version is in force for whom; the rest of xk.ko knows backends only by
 * this structure. Each has a folder in backend/, and a line in backend/list.c.
 *
 * All hooks are called under xk_lock. A hook that is NULL has nothing to do.
 */
#ifndef _XK_BACKEND_H
#define _XK_BACKEND_H

#include <linux/types.h>

struct module;
struct xk_addresses;
struct xk_error;
struct xk_live_site;
struct xk_pokes;
struct xk_site_info;
struct xk_tune;
struct xk_values;

/* What a site looks like at this moment. */
enum xk_armed_state {
	XK_STATE_DISARMED,	/* the original bytes */
	XK_STATE_BREAKPOINT,
	XK_STATE_JUMP,
	XK_STATE_PATCHED,	/* the original instruction, with the value in it */
	XK_STATE_UNKNOWN,	/* could not be read, or is not ours */
};

/* Sites in one call. */
#define XK_BATCH 32

/* Traits. */
#define XK_BACKEND_TEXT		0x1	/* changes instructions: no thread may be in the middle */
#define XK_BACKEND_PREEMPTIBLE	0x2	/* its updates may be switched out */
#define XK_BACKEND_SHARED	0x4	/* all threads use one value: no mode task, no policy */
#define XK_BACKEND_FLIP_LAST	0x8	/* its text changes after the versions */
#define XK_BACKEND_MUST_ARM	0x10	/* a load fails if it cannot arm: no fallback */

/* Text that changes in the stop of a transition. */
struct xk_text_change {
	const struct xk_backend *backend;
	struct xk_pokes *pokes;
};

struct xk_backend {
	const char *name;
	u32 traits;
	/* XK_LOAD_*: a tune may use it; only it. 0: every tune may. */
	u32 flag, only;

	int (*init)(void);
	void (*exit)(void);

	/*
	 * Whether a site in code can be of this backend: NULL, and all is ready, or why not;
	 * site.private was zeroed before. `text` are the verified bytes of its function; NULL
	 * for the backend that every site can have.
	 */
	const char *(*prepare)(struct xk_live_site *site, const u8 *text, u32 len);
	/* Of the backend of sites in data: in place of the comparison of bytes. */
	int (*verify)(struct xk_live_site *site, const struct module *module,
		      struct xk_error *error);
	/*
	 * From here on updates may run; at most XK_BATCH at once. When it fails, some may be
	 * armed: they are in that phase.
	 */
	int (*arm)(struct xk_live_site **sites, unsigned int nr, struct xk_error *error);
	/* When it returns, no update runs. At most XK_BATCH at once. */
	void (*disarm)(struct xk_live_site **sites, unsigned int nr);
	/* Prepared, perhaps, and not armed. */
	void (*destroy)(struct xk_live_site *site);

	enum xk_armed_state (*state)(const struct xk_live_site *site);
	/* Executions that are known to have used the default. */
	u64 (*missed)(const struct xk_live_site *site);
	/* More flags for user space, and, of an object, what it holds. */
	u32 (*describe)(const struct xk_live_site *site, struct xk_site_info *info);
	/* The instructions that the site holds. Without it, the one at the site. */
	void (*extent)(const struct xk_live_site *site, unsigned long *start, unsigned long *end);
	/* Puts the original bytes into what was read from `start` on. */
	void (*undo)(const struct xk_live_site *site, u8 *view, unsigned long start, u32 len);
	/*
	 * An instruction begins at `address` that holds a value, or is to hold one when the
	 * tune of `site`, which may be NULL, is loaded.
	 */
	bool (*holds_value)(const struct xk_live_site *site, unsigned long address);

	/* Room for a value that is about to be written; write() is called behind the flip. */
	int (*open)(struct xk_live_site *site, s64 value, struct xk_error *error);
	void (*write)(struct xk_live_site *site, s64 value);
	void (*close)(struct xk_live_site *site);

	/* Whether the sites of the tune can have this value; if not, `error` says why. */
	int (*accepts)(const struct xk_tune *tune, s64 value, struct xk_error *error);
	/*
	 * Addresses at which no thread may stand when versions change, and how many ranges
	 * that are; only the number if `to` is NULL, at least as many as there will be.
	 */
	unsigned int (*keep_clear)(const struct xk_tune *tune, struct xk_addresses *to);
	/* It is not enough to change versions for this one to come into force. */
	bool (*needs_stop)(const struct xk_tune *tune, const struct xk_values *next);

	/*
	 * The text that changes with the versions of these tunes, from `values` to `other`;
	 * NULL when none does. -ENOMEM, -EOVERFLOW as ERR_PTR().
	 */
	struct xk_text_change *(*change_text)(struct xk_tune *const *tunes, unsigned int nr,
					      bool settling);
	/* In the stop: an instruction that somebody else changed, so that nothing may; or 0. */
	unsigned long (*find_obstacle)(const struct xk_text_change *change);
	/* After the stop: the change was made. */
	void (*changed)(struct xk_text_change *change, struct xk_tune *const *tunes,
			unsigned int nr);
	void (*free_change)(struct xk_text_change *change);
	/* The transition is over: all threads use `values`. */
	void (*settle)(struct xk_tune *const *tunes, unsigned int nr);

	/* The text of a module goes: nothing is put back there. */
	void (*module_going)(const struct module *module);
	/* Text that tunes have left behind goes now, if it can: it is in the way. */
	void (*reclaim)(void);
	/* What was kept until the end of an operation can go. */
	void (*flush)(void);
};

#define XK_MAX_BACKENDS 8

/* In the order in which a site tries them; ends with NULL. Constant after xk_backends_init(). */
extern const struct xk_backend *xk_backends[XK_MAX_BACKENDS + 1];

/* `list` ends with NULL. -E2BIG, or what the init() of a backend returns. */
int xk_backends_init(const struct xk_backend *const *list);
void xk_backends_exit(void);
void xk_backends_module_going(const struct module *module);
void xk_backends_reclaim(void);
void xk_backends_flush(void);
bool xk_backends_hold_value(const struct xk_live_site *site, unsigned long address);

/* The backend that every site in code can have; the one of sites in data. */
const struct xk_backend *xk_backend_fallback(void);
const struct xk_backend *xk_backend_of_data(void);

/* A tune with these XK_LOAD_* may use it. */
bool xk_backend_wanted(const struct xk_backend *backend, u32 load_flags);
/* Of all that it may use. */
u32 xk_backend_traits(u32 load_flags);

#endif /* _XK_BACKEND_H */
