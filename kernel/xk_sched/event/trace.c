// SPDX-License-Identifier: GPL-2.0-only
/* Defines the tracepoints of event/trace.h. */
#define CREATE_TRACE_POINTS
#include "event/trace.h"
