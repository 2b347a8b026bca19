/* SPDX-License-Identifier: GPL-2.0-only */
/* The programs of an attachment: program.c. */
#ifndef _XK_PROBE_PROGRAM_H
#define _XK_PROBE_PROGRAM_H

#include "probe/probe.h"

/*
 * Takes the programs with these descriptors. Without any, the attachment has one entry that only
 * counts. Returns 0, or an error with its reason in `error`; then xk_probe_programs_free() gives
 * back what was taken. Under xk_lock; may sleep.
 */
int xk_probe_programs_take(struct xk_attachment *attachment, const s32 *descriptors, u32 nr,
			   struct xk_error *error);

/* Gives them back. No handler runs them any more. */
void xk_probe_programs_free(struct xk_attachment *attachment);

#endif /* _XK_PROBE_PROGRAM_H */
