// SPDX-License-Identifier: GPL-2.0-only
/* The program of kept.bpf.c with a heap in debug mode. */
#define XK_HEAP_DEBUG
#include "kept.bpf.c"
