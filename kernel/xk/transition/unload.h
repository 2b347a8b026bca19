/* SPDX-License-Identifier: GPL-2.0-only */
/* Tunes that go, and nobody may be there to ask or to be told: unload.c. */
#ifndef _XK_UNLOAD_H
#define _XK_UNLOAD_H

struct file;
struct xk_tune;

/*
 * The default comes back, and the tune goes: at once, or, if threads are inside, when they
 * have left. Nobody waits; without memory for it, it is tried again. Under xk_lock.
 */
void xk_unload_start(struct xk_tune *tune);

/* All tunes of an owner that is gone. Takes xk_lock. */
void xk_unload_owned(struct file *owner);

/* All tunes. Waits for as long as threads are inside. Takes xk_lock. */
void xk_unload_all(void);

#endif /* _XK_UNLOAD_H */
