/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bytes that the kernel puts back some time after a site is disarmed: who has disarmed sites
 * returns when they are back, and does not hold xk_lock meanwhile.
 */
#ifndef _XK_RESTORE_H
#define _XK_RESTORE_H

struct xk_live_site;

/* The kernel will put the first byte of the site back. Under xk_lock. */
void xk_restore_note(const struct xk_live_site *site);

/* Gives up xk_lock, and waits until the kernel has put back what was noted under it. */
void xk_unlock_restored(void);

#endif /* _XK_RESTORE_H */
