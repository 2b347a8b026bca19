// SPDX-License-Identifier: GPL-2.0-only
/* The bodies of the tracepoints. */
#define CREATE_TRACE_POINTS
#include "model/trace.h"
