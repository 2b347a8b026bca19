/* SPDX-License-Identifier: GPL-2.0-only */
/* For C and assembler: slots, and what the code in them finds at fixed places. */
#ifndef _XK_SLOT_LAYOUT_H
#define _XK_SLOT_LAYOUT_H

/* A slot is aligned to its size. It begins with the address of its struct xk_point. */
#define XK_SLOT_LEN 64
#define XK_SLOT_CODE 8

/* Offset in struct xk_point. */
#define XK_POINT_ADDRESS 0

#endif /* _XK_SLOT_LAYOUT_H */
