// SPDX-License-Identifier: GPL-2.0-only
/* Unloading, also if no process waits for it. */
#include <linux/delay.h>

#include "core/lease.h"
#include "core/restore.h"
#include "transition/transition.h"
#include "transition/unload.h"

/* While xk.ko is removed: the interval of checks, and the number of checks between messages. */
#define UNLOAD_INTERVAL_MS 10
#define UNLOAD_REPORTS 500

void xk_unload_start(struct xk_tune *tune)
{
	struct xk_error error = {};
	struct xk_live_transition *transition;
	int ret;

	if (tune->transition) {
		tune->doomed = true;
		return;
	}
	transition = xk_transition_create(1, tune->mode);
	ret = -ENOMEM;
	if (transition)
		ret = xk_transition_add(transition, tune, tune->default_value, NULL, true, &error);
	if (ret == -EBADMSG) {
		/* The code of one of its scopes is not the analysed code. */
		transition->mode = XK_MODE_NOW;
		ret = xk_transition_add(transition, tune, tune->default_value, NULL, true, &error);
		if (!ret)
			pr_warn("xk: %s: unloaded without waiting: %s\n", tune->name, error.text);
	}
	if (ret) {
		if (transition)
			xk_transition_finish(transition);
		tune->doomed = true;
		xk_lease_retry(tune);
		return;
	}
	tune->doomed = false;
	if (xk_transition_advance(transition))
		xk_transition_finish(transition);
	else
		xk_transition_leave(transition);
}

void xk_unload_owned(struct file *owner)
{
	struct xk_tune *tune, *next;

	mutex_lock(&xk_lock);
	list_for_each_entry_safe(tune, next, &xk_tunes, list) {
		if (tune->owner != owner)
			continue;
		tune->owner = NULL;
		xk_unload_start(tune);
	}
	xk_unlock_restored();
}

void xk_unload_all(void)
{
	struct xk_tune *tune, *next;
	unsigned int waited = 0;

	mutex_lock(&xk_lock);
	list_for_each_entry_safe(tune, next, &xk_tunes, list)
		xk_unload_start(tune);
	while (!list_empty(&xk_tunes)) {
		mutex_unlock(&xk_lock);
		if (waited++ % UNLOAD_REPORTS == UNLOAD_REPORTS - 1)
			pr_info("xk: waiting for threads inside the scopes of %s\n",
				list_first_entry(&xk_tunes, struct xk_tune, list)->name);
		msleep(UNLOAD_INTERVAL_MS);
		mutex_lock(&xk_lock);
	}
	xk_unlock_restored();
}
