/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Slots: space for the code of probes, outside of xk.ko. The kernel allocates it where a 32-bit
 * displacement reaches all kernel text. It is never writable and executable at the same time. All
 * functions need xk_lock; the functions that allocate or free may sleep.
 */
#ifndef _XK_SLOT_H
#define _XK_SLOT_H

#include <linux/types.h>

#include "base/slot_layout.h"

/* Returns NULL if slots can be allocated, or why this kernel has none. */
const char *xk_slots_missing(void);

/* Returns the address of an unused slot, or 0 without memory. */
unsigned long xk_slot_get(void);

/* Makes a slot unused. No thread is in it, and no jump leads to it. */
void xk_slot_put(unsigned long address);

/* Frees the space, when no slot is in use. Without xk_lock. */
void xk_slots_exit(void);

#endif /* _XK_SLOT_H */
