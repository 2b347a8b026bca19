/* SPDX-License-Identifier: GPL-2.0-only */
/* For C and assembler: the number and the size of stubs. */
#ifndef _XK_STUB_LAYOUT_H
#define _XK_STUB_LAYOUT_H

#define XK_STUBS 1024
#define XK_STUB_LEN 256

#endif /* _XK_STUB_LAYOUT_H */
