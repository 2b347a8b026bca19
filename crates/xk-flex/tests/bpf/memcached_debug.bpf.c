// SPDX-License-Identifier: GPL-2.0-only
/* The cache with a heap in debug mode. */
#define XK_HEAP_DEBUG
#include "../../../../bpf/servers/memcached.bpf.c"
