/* SPDX-License-Identifier: GPL-2.0-only */
/* Names of states: state.c. */
#ifndef _XK_SCHED_STATE_H
#define _XK_SCHED_STATE_H

#include "xk_sched.h"

const char *xk_state_name(enum xk_state state);

#endif /* _XK_SCHED_STATE_H */
