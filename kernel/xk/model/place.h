/* SPDX-License-Identifier: GPL-2.0-only */
/* A function or an object of the running kernel, as the analysis saw it. */
#ifndef _XK_PLACE_H
#define _XK_PLACE_H

#include <linux/types.h>

#include "uapi/xk.h"

/* The bytes of a function that was analysed; shared by the sites and scopes in it. */
struct xk_analysed {
	unsigned int users;
	u64 bytes_at;		/* where it is in the table: tells two apart */
	u64 mask_at;
	u32 len;
	u8 *bytes;
	u8 *mask;		/* 0 where the kernel changes bytes itself */
};

/* A function, or, of a site in data, an object. */
struct xk_place {
	unsigned long function;		/* its address; 0: not known */
	char symbol[XK_SYMBOL_LEN];
	char module[XK_MODULE_LEN];
	/* Of vmlinux only until it was verified. */
	struct xk_analysed *analysed;
};

/* What has become of a site or a scope. */
enum xk_phase {
	XK_PHASE_IDLE,		/* described only, or disarmed at the end */
	XK_PHASE_WAITING,	/* its module is not loaded */
	XK_PHASE_READY,		/* verified; a site will be armed in a moment */
	XK_PHASE_ARMED,
	XK_PHASE_BROKEN,	/* its module came, but not with the code that was analysed */
};

#endif /* _XK_PLACE_H */
