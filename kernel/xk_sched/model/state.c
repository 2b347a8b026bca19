// SPDX-License-Identifier: GPL-2.0-only
/* Names of states. */
#include "model/state.h"

static const char *const names[XK_NR_STATES] = {
	[XK_NOT_QUEUED] = "NOT_QUEUED",
	[XK_READY] = "READY",
	[XK_READY_TICK] = "READY_TICK",
	[XK_RUNNING] = "RUNNING",
	[XK_BLOCKED] = "BLOCKED",
	[XK_MIGRATING] = "MIGRATING",
	[XK_TERMINATED] = "TERMINATED",
};

const char *xk_state_name(enum xk_state state)
{
	return state < XK_NR_STATES ? names[state] : "invalid";
}
