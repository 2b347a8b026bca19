/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the data structures here are written in, so that one source is an extension, part of a
 * kernel module, or part of a program: types, memory, and the qualifier __heap of pointers to it.
 */
#ifndef _XK_FLEX_BASE_H
#define _XK_FLEX_BASE_H

#if defined(__BPF__)

#include "../xk_heap.bpf.h"

#elif defined(__KERNEL__)

#include <linux/slab.h>
#include <linux/types.h>

#define __heap

static inline void *xk_malloc(__u64 size)
{
	return kmalloc(size, GFP_ATOMIC);
}

static inline void *xk_calloc(__u64 number, __u64 size)
{
	return kcalloc(number, size, GFP_ATOMIC);
}

static inline void xk_free(void *object)
{
	kfree(object);
}

#else

#include <linux/types.h>
#include <stdlib.h>

#define __heap

static inline void *xk_malloc(__u64 size)
{
	return malloc(size);
}

static inline void *xk_calloc(__u64 number, __u64 size)
{
	return calloc(number, size);
}

static inline void xk_free(void *object)
{
	free(object);
}

#endif

/* Functions of a structure: not all are used everywhere. */
#define xk_fn static __attribute__((__noinline__, __unused__))

#endif
