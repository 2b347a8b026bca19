/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the data structures here are written in, so that one source is an extension, part of a
 * kernel module, or part of a program: types, memory, and the qualifier __heap of pointers to it.
 */
#ifndef _XK_FLEX_BASE_H
#define _XK_FLEX_BASE_H

#if defined(__BPF__)

#include "../xk_heap.bpf.h"

/*
 * The same number, or pointer. The verifier knows nothing of it any more, and so does not follow
 * what comes next for each value that it may have.
 */
#define xk_any(number)		((__typeof__(number))xk_heap_any((__u64)(number)))

/*
 * An object of the heap, for several accesses in a row: the kernel shortens its address once, and
 * not before each of them. It is not a pointer to keep.
 */
#define xk_here(object)		((__typeof_unqual__(*(object)) *)(object))

/* A function that is followed by itself says so. */
#define xk_use_heap()		XK_USE_HEAP()

/* Of a number that it does not know: that it is equal to another one, or within bounds. */
#define xk_forget(number)	asm volatile("%0 ^= 0" : "+r"(number))

#elif defined(__KERNEL__)

#include <linux/slab.h>
#include <linux/types.h>

#define __heap
#define xk_any(number)		(number)
#define xk_here(object)		(object)
#define xk_use_heap()		do { } while (0)
#define xk_forget(number)	do { } while (0)

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
#define xk_any(number)		(number)
#define xk_here(object)		(object)
#define xk_use_heap()		do { } while (0)
#define xk_forget(number)	do { } while (0)

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

/* Parts of them. */
#define xk_inline static inline __attribute__((__always_inline__, __unused__))

#define xk_null ((void __heap *)0)

/*
 * The part of a function that changes a structure, in loops with a constant number of turns. It
 * takes numbers only. In an object that is too large for the verifier, such parts and the heap's
 * functions are global functions, which it follows once, and not once for each call: define
 * XK_FLEX_APART before. They must not be called while preemption is disabled.
 */
#if defined(__BPF__) && defined(XK_FLEX_APART)

#define xk_change __attribute__((__noinline__))

xk_change __u64 xk_malloc_apart(__u64 size)
{
	XK_USE_HEAP();
#ifdef XK_HEAP_DEBUG
	return (__u64)xk_malloc(size);
#else
	return (__u64)xk_heap_take(size);
#endif
}

xk_change int xk_free_apart(__u64 object)
{
	XK_USE_HEAP();
#ifdef XK_HEAP_DEBUG
	xk_free((void __heap *)object);
#else
	xk_heap_free((void __heap *)object);
#endif
	return 0;
}

/* In debug mode, each call says its line. */
#ifndef XK_HEAP_DEBUG
#define xk_malloc(size)		((void __heap *)xk_malloc_apart(size))
#define xk_free(object)		xk_free_apart((__u64)(object))
#endif

#else
#define xk_change xk_inline
#endif

/*
 * Sets a word of an object to 0. Of several such stores, one behind the other, clang would make a
 * single one, and forget that it goes to the heap.
 */
#define xk_zero(word)		(*(volatile __typeof__(word) *)&(word) = (__typeof__(word))0)

/* The compiler does not know this number any longer. */
#define xk_opaque(number)	asm volatile("" : "+r"(number))

/*
 * A function of a structure searches first, in loops in which a run may be ended. Then it changes
 * the structure, in loops with a constant number of turns at most, which `xk flex` leaves alone. So
 * it changes everything or nothing.
 */

#endif
