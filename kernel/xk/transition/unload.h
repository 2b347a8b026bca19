/* SPDX-License-Identifier: GPL-2.0-only */
/* Unloads tunes when no process may be waiting: unload.c. */
#ifndef _XK_UNLOAD_H
#define _XK_UNLOAD_H

struct file;
struct xk_tune;

/*
 * Starts a transition to the default, after which the tune is removed: at once, or when the threads
 * that are inside have left. Does not wait for them. Without memory it is retried. The tune may be
 * freed on return. Under xk_lock; may sleep.
 */
void xk_unload_start(struct xk_tune *tune);

/* Unloads all tunes of an owner that has exited. Takes xk_lock; may sleep. */
void xk_unload_owned(struct file *owner);

/* Unloads all tunes and waits until they are gone, as long as threads are inside. Takes xk_lock. */
void xk_unload_all(void);

#endif /* _XK_UNLOAD_H */
