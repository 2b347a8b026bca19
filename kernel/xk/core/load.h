/* SPDX-License-Identifier: GPL-2.0-only */
/* Loading and removal of tunes: load.c. */
#ifndef _XK_LOAD_H
#define _XK_LOAD_H

#include "model/tune.h"

struct xk_request;

/*
 * Loads a tune with the default in force, and arms its sites. Stores its number in `load`. Returns
 * 0, or an error with its reason in `error`; nothing is left behind then. Takes xk_lock; sleeps.
 */
int xk_tune_load(struct file *owner, const struct xk_request *request, struct xk_load *load,
		 struct xk_error *error);

/* Takes the owner from the tune. Returns 0, -ENOENT or -EPERM. Takes xk_lock. */
int xk_tune_detach(struct file *caller, u32 id, struct xk_error *error);

/* Disarms and frees a tune. The default is in force everywhere. Under xk_lock; may sleep. */
void xk_tune_remove(struct xk_tune *tune);

/* For the module notifiers: a module is being loaded; it is being removed. Take xk_lock; sleep. */
void xk_tune_module_coming(const struct module *module);
void xk_tune_module_going(const struct module *module);

#endif /* _XK_LOAD_H */
