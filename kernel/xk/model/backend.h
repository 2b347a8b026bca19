/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface between xk.ko and its backends. A backend determines how control reaches an update.
 * It owns the bytes at a site. It knows neither user space nor which version is in force for which
 * thread. The rest of xk.ko uses backends only through this structure. Each backend has a folder in
 * backend/ and a line in backend/list.c.
 *
 * All hooks except init and exit are called with xk_lock held. A hook that is NULL does nothing.
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

/* The running bytes of a site. */
enum xk_armed_state {
	XK_STATE_DISARMED,	/* the original bytes */
	XK_STATE_BREAKPOINT,
	XK_STATE_JUMP,
	XK_STATE_PATCHED,	/* the original instruction, with the value in it */
	XK_STATE_UNKNOWN,	/* unreadable, or changed by someone else */
};

/* Maximum number of sites in one call of arm() or disarm(). */
#define XK_BATCH 32

/* Traits of a backend. */
#define XK_BACKEND_TEXT		0x1	/* changes instructions: no thread may be inside them */
#define XK_BACKEND_PREEMPTIBLE	0x2	/* a thread may be switched out in its updates */
#define XK_BACKEND_SHARED	0x4	/* all threads use one value: no mode task, no policy */
#define XK_BACKEND_FLIP_LAST	0x8	/* its text changes after the versions, in the flip */
#define XK_BACKEND_MUST_ARM	0x10	/* if it cannot arm, the load fails: no fallback */

/* A change of text in the stop of a transition. */
struct xk_text_change {
	const struct xk_backend *backend;
	struct xk_pokes *pokes;
};

struct xk_backend {
	const char *name;
	u32 traits;
	/*
	 * XK_LOAD_* flags: `flag` allows this backend, `only` allows no other. 0: always allowed.
	 */
	u32 flag, only;

	int (*init)(void);
	void (*exit)(void);

	/*
	 * Prepares a site in code for this backend. Returns NULL, or the reason why the site cannot
	 * use it. site.private is zeroed. `text` is the verified text of the function, `len` bytes;
	 * it may be NULL for the fallback backend.
	 */
	const char *(*prepare)(struct xk_live_site *site, const u8 *text, u32 len);
	/* For the backend of sites in data: verifies the site instead of comparing bytes. */
	int (*verify)(struct xk_live_site *site, const struct module *module,
		      struct xk_error *error);
	/*
	 * Arms at most XK_BATCH sites; from here on updates may run. On an error some sites may be
	 * armed: their phase is XK_PHASE_ARMED.
	 */
	int (*arm)(struct xk_live_site **sites, unsigned int nr, struct xk_error *error);
	/* Disarms at most XK_BATCH sites. No update runs when it returns. */
	void (*disarm)(struct xk_live_site **sites, unsigned int nr);
	/* Frees what prepare() allocated. The site may be unprepared; it is not armed. */
	void (*destroy)(struct xk_live_site *site);

	enum xk_armed_state (*state)(const struct xk_live_site *site);
	/* Number of executions that are known to have used the default. NULL: site.missed. */
	u64 (*missed)(const struct xk_live_site *site);
	/*
	 * Returns more XK_SITE_* flags for user space. For a site in data, also stores the content
	 * of the object in `info`, which may be NULL.
	 */
	u32 (*describe)(const struct xk_live_site *site, struct xk_site_info *info);
	/*
	 * Stores the range of instructions that the site reserves. Without this hook: the one at
	 * the site.
	 */
	void (*extent)(const struct xk_live_site *site, unsigned long *start, unsigned long *end);
	/*
	 * Replaces our bytes in `view`, a copy of the text from `start` on, by the original ones.
	 */
	void (*undo)(const struct xk_live_site *site, u8 *view, unsigned long start, u32 len);
	/*
	 * Whether an instruction begins at `address` that holds a value, or will hold one when the
	 * tune of `site` is loaded. `site` may be NULL.
	 */
	bool (*holds_value)(const struct xk_live_site *site, unsigned long address);

	/*
	 * open() reserves what write() of this value needs and may fail; write() follows the flip.
	 */
	int (*open)(struct xk_live_site *site, s64 value, struct xk_error *error);
	void (*write)(struct xk_live_site *site, s64 value);
	void (*close)(struct xk_live_site *site);

	/* Returns 0, or an error with its reason in `error` if a site cannot hold the value. */
	int (*accepts)(const struct xk_tune *tune, s64 value, struct xk_error *error);
	/*
	 * Stores the ranges of addresses in which no thread may be when versions change, and
	 * returns their number. If `to` is NULL, returns an upper bound of that number.
	 */
	unsigned int (*keep_clear)(const struct xk_tune *tune, struct xk_addresses *to);
	/* Whether text must change too for `next` to come into force, which needs a stop. */
	bool (*needs_stop)(const struct xk_tune *tune, const struct xk_values *next);

	/*
	 * Creates the change of text that goes with the change of versions of these tunes, from
	 * `values` to `other`. Returns NULL if no text changes; -ENOMEM or -EOVERFLOW as ERR_PTR().
	 */
	struct xk_text_change *(*change_text)(struct xk_tune *const *tunes, unsigned int nr,
					      bool settling);
	/*
	 * In the stop: an instruction that someone else changed or probes, which forbids the
	 * change; or 0.
	 */
	unsigned long (*find_obstacle)(const struct xk_text_change *change);
	/* After the stop, if the change was made. */
	void (*changed)(struct xk_text_change *change, struct xk_tune *const *tunes,
			unsigned int nr);
	void (*free_change)(struct xk_text_change *change);
	/* The transition is over: all threads use `values`. */
	void (*settle)(struct xk_tune *const *tunes, unsigned int nr);

	/* The text of a module is about to be freed: nothing is restored there. */
	void (*module_going)(const struct module *module);
	/*
	 * Restores text that earlier tunes still occupy, if possible, because the caller needs it.
	 */
	void (*reclaim)(void);
	/* Frees resources whose release is deferred to the end of an operation. */
	void (*flush)(void);
};

#define XK_MAX_BACKENDS 8

/* All backends, in the order in which a site tries them; ends with NULL. */
extern const struct xk_backend *xk_backends[XK_MAX_BACKENDS + 1];

/*
 * Registers the backends of `list`, which ends with NULL, and calls init() of each. On an
 * error, undoes those already initialised. -E2BIG, or the error of an init(). Without xk_lock,
 * as xk_backends_exit(); the other functions need xk_lock.
 */
int xk_backends_init(const struct xk_backend *const *list);
void xk_backends_exit(void);

/* Call the hook of the same name of each backend. */
void xk_backends_module_going(const struct module *module);
void xk_backends_reclaim(void);
void xk_backends_flush(void);

/* Whether holds_value() of any backend returns true. */
bool xk_backends_hold_value(const struct xk_live_site *site, unsigned long address);

/* The backend that every site in code can use, and the backend of sites in data. */
const struct xk_backend *xk_backend_fallback(void);
const struct xk_backend *xk_backend_of_data(void);

/* Whether a tune with these XK_LOAD_* flags may use the backend. */
bool xk_backend_wanted(const struct xk_backend *backend, u32 load_flags);
/* Returns the traits of all backends that such a tune may use, together. */
u32 xk_backend_traits(u32 load_flags);

#endif /* _XK_BACKEND_H */
