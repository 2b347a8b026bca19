/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How control reaches an update. A backend owns the bytes at the site; it
 * knows nothing about user space, nor when which value is in force. There are
 * kprobes, detours, and patches of the instructions that hold the value.
 */
#ifndef _XK_BACKEND_H
#define _XK_BACKEND_H

#include <linux/types.h>

struct xk_error;
struct xk_live_site;

/* What a site looks like at this moment. */
enum xk_armed_state {
	XK_STATE_DISARMED,	/* the original bytes */
	XK_STATE_BREAKPOINT,
	XK_STATE_JUMP,
	XK_STATE_PATCHED,	/* the original instruction, with the value in it */
	XK_STATE_UNKNOWN,	/* could not be read, or is not ours */
};

#define XK_BATCH 32

struct xk_backend {
	/* Chooses the handler, also after a disarm; nothing is changed in the kernel. */
	int (*prepare)(struct xk_live_site *site, struct xk_error *error);
	/*
	 * From here on the updates may run; at most XK_BATCH at once. When it fails,
	 * some may be armed: they are in that phase.
	 */
	int (*arm)(struct xk_live_site **sites, unsigned int nr, struct xk_error *error);
	/* When it returns, no update runs. At most XK_BATCH at once. */
	void (*disarm)(struct xk_live_site **sites, unsigned int nr);
	void (*destroy)(struct xk_live_site *site);
	enum xk_armed_state (*state)(const struct xk_live_site *site);
	/* Executions that the backend knows to have used the default. */
	u64 (*missed)(const struct xk_live_site *site);
};

/* Gives up xk_lock, and waits until the kernel has restored what was disarmed under it. */
void xk_unlock_restored(void);

extern const struct xk_backend xk_backend_kprobe;
extern const struct xk_backend xk_backend_detour;
extern const struct xk_backend xk_backend_patch;

#endif /* _XK_BACKEND_H */
