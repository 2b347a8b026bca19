/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bytes that the kernel restores some time after a site was disarmed. A caller that disarmed sites
 * returns when the bytes are restored, and waits for that without xk_lock.
 */
#ifndef _XK_RESTORE_H
#define _XK_RESTORE_H

struct xk_live_site;

/* Notes that the kernel will restore the first byte of the site. Under xk_lock. */
void xk_restore_note(const struct xk_live_site *site);

/* Releases xk_lock, and waits until the kernel has restored what was noted. Sleeps. */
void xk_unlock_restored(void);

#endif /* _XK_RESTORE_H */
