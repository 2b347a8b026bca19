/* SPDX-License-Identifier: GPL-2.0-only */
/* What an oops says about constants that were changed: oops.c. */
#ifndef _XK_OOPS_H
#define _XK_OOPS_H

void xk_oops_refresh(void);
int xk_oops_init(void);
void xk_oops_exit(void);

#endif /* _XK_OOPS_H */
