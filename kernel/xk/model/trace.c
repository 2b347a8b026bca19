// SPDX-License-Identifier: GPL-2.0-only
/* Defines the tracepoints of model/trace.h. */
#define CREATE_TRACE_POINTS
#include "model/trace.h"
