/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions of target_text.S. */
#ifndef _XK_TARGET_H
#define _XK_TARGET_H

int xk_target_value(void);
int xk_target_twice(void);
int xk_target_compare(int x);
int xk_target_memory(int *x, int *other);
void xk_target_store(int *x);
int xk_target_select(int x);

#endif /* _XK_TARGET_H */
