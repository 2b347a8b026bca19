/* SPDX-License-Identifier: GPL-2.0-only */
/* A function or an object of the running kernel, as the analysis saw it. */
#ifndef _XK_PLACE_H
#define _XK_PLACE_H

#include <linux/types.h>

#include "uapi/xk.h"

/* The analysed bytes of a function, shared by the sites and scopes in it. */
struct xk_analysed {
	unsigned int users;
	u64 bytes_at;		/* offset in the table: identifies the function */
	u64 mask_at;
	u32 len;
	u8 *bytes;
	u8 *mask;		/* 0 where the kernel itself changes bytes */
};

/* A function; for a site in data, an object. */
struct xk_place {
	unsigned long function;		/* its address; 0 if unknown */
	char symbol[XK_SYMBOL_LEN];
	char module[XK_MODULE_LEN];
	/* NULL for an object, and in vmlinux once the scope is verified or the site is armed. */
	struct xk_analysed *analysed;
};

/* State of a site or a scope. */
enum xk_phase {
	XK_PHASE_IDLE,		/* not verified yet, or disarmed for good */
	XK_PHASE_WAITING,	/* its module is not loaded */
	XK_PHASE_READY,		/* verified; of a site: not armed yet */
	XK_PHASE_ARMED,
	XK_PHASE_BROKEN,	/* its module was loaded with other code than analysed */
};

#endif /* _XK_PLACE_H */
