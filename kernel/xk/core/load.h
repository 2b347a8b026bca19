/* SPDX-License-Identifier: GPL-2.0-only */
/* Tunes come and go: load.c. */
#ifndef _XK_LOAD_H
#define _XK_LOAD_H

#include "model/tune.h"

struct xk_request;

/* `load` gets the number of the tune. Its owner is `owner`. */
int xk_tune_load(struct file *owner, const struct xk_request *request, struct xk_load *load,
		 struct xk_error *error);
int xk_tune_detach(struct file *caller, u32 id, struct xk_error *error);

/* The default is in force everywhere. Under xk_lock. */
void xk_tune_remove(struct xk_tune *tune);

/* Modules come and go. They take xk_lock. */
void xk_tune_module_coming(const struct module *module);
void xk_tune_module_going(const struct module *module);

#endif /* _XK_LOAD_H */
