/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which instructions may be replaced: allowed.c. Asking kprobes about each would take a search
 * through all jump labels of the kernel, every time.
 */
#ifndef _XK_PROBE_ALLOWED_H
#define _XK_PROBE_ALLOWED_H

#include <linux/types.h>

struct module;
struct xk_function;
struct xk_window;

/* Text that the kernel patches. */
struct xk_reserved {
	unsigned long address;
	u8 len;
};

struct xk_reserved_list {
	unsigned int nr, capacity;
	struct xk_reserved *at;		/* ascending by address */
};

struct xk_allowed {
	bool known;			/* else kprobes must be asked */
	struct xk_reserved_list of_module;
	const struct module *module;	/* whose text is included, besides that of vmlinux */
};

/*
 * Collects what the kernel patches in vmlinux, the first time. Zeroed at first. Under xk_lock; may
 * sleep.
 */
void xk_allowed_create(struct xk_allowed *allowed);
void xk_allowed_free(struct xk_allowed *allowed);

/* Frees what was collected. */
void xk_allowed_exit(void);

/*
 * Returns NULL if probes are allowed in the function, or why they are not. Includes its module,
 * which is held, or NULL.
 */
const char *xk_allowed_function(struct xk_allowed *allowed, struct xk_function *function,
				const struct module *module);

/* Whether the kernel changes text from `start` to before `end`. Only if it is `known`. */
const char *xk_allowed_bytes(const struct xk_allowed *allowed, unsigned long start,
			     unsigned long end);

/* The same for the instructions of a window in that function. */
const char *xk_allowed_window(const struct xk_allowed *allowed, const struct xk_window *window);

#endif /* _XK_PROBE_ALLOWED_H */
