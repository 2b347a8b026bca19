// SPDX-License-Identifier: GPL-2.0-only
/* The structures of structures.bpf.c in a heap in debug mode. */
#define XK_HEAP_DEBUG
#include "structures.bpf.c"
