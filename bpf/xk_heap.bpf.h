/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For extensions (docs/flex.md): a heap in an arena. XK_HEAP(pages) declares it; xk_malloc(),
 * xk_calloc() and xk_free() work in programs of any type, on any CPU, and in programs that
 * interrupt each other. User space gives the heap its pages (xk_flex::Heap); a program never
 * waits for them.
 *
 * Pointers into the heap have the qualifier __heap. They may be kept in maps and in the heap, and
 * user space follows them as they are. Compile with -mcpu=v3 or later, and include vmlinux.h or
 * linux/types.h before. With XK_HEAP_DEBUG, what is written around objects is found, and more
 * (xk_heap_debug.bpf.h).
 */
#ifndef _XK_HEAP_BPF_H
#define _XK_HEAP_BPF_H

#define __heap __attribute__((address_space(1)))
#define xk_heap_inline static inline __attribute__((always_inline))
/*
 * Functions with several ways through. What their registers are at the end, the verifier forgets,
 * so that it follows what comes behind them once and not once for each way.
 */
#define xk_heap_apart static __attribute__((__noinline__, __unused__))

/* Where user space maps it. Two heaps of a process have different addresses. */
#ifndef XK_HEAP_ADDRESS
#define XK_HEAP_ADDRESS		(1ull << 44)
#endif

/*
 * The heap, of so many pages of 4 KiB at most: at least 64, and at most 1048576. It has none until
 * user space gives it some. A heap belongs to one object.
 */
#define XK_HEAP(pages)						\
struct xk_heap_map {						\
	int (*type)[33];		/* BPF_MAP_TYPE_ARENA */	\
	int (*map_flags)[1024];		/* BPF_F_MMAPABLE */	\
	int (*max_entries)[pages];				\
	enum { xk_heap_address = XK_HEAP_ADDRESS } map_extra;	\
} xk_heap __attribute__((section(".maps"), used));		\
XK_HEAP_FAULTS

struct xk_heap_map;
extern struct xk_heap_map xk_heap __attribute__((section(".maps")));

/* A program that uses the heap and calls none of the functions below says so, at its beginning. */
#define XK_USE_HEAP()		asm volatile("" :: "r"(&xk_heap))

/*
 * A heap is divided into spans. Each serves one size class: 16 to 128 bytes in steps of 16, then
 * four sizes in each doubling up to 32 KiB, then one span, two, four ... of them.
 */
#define XK_HEAP_SPAN		65536u
#define XK_HEAP_SMALL		40	/* classes that share a span; the rest are whole spans */
#define XK_HEAP_CLASSES		56
#define XK_HEAP_LARGEST		(XK_HEAP_SPAN << 12)

/* Where things are in the heap. The first page is never there: no pointer is NULL. */
#define XK_HEAP_CONTROL		4096u
#define XK_HEAP_USERS		8192u	/* which locks threads of user space take, in 16 KiB */
#define XK_HEAP_KINDS		65536u
#define XK_HEAP_CPUS		131072u

/* The heap's first words, shared with user space. All offsets are bytes from its start. */
struct xk_heap_control {
	__u64 fresh;		/* spans from here on have never been used */
	__u64 ready;		/* pages are there up to here */
	__u64 wanted;		/* user space is woken when less than this is ready and fresh */
	__u64 refused;		/* allocations for which there was no memory */
	__u64 invalid;		/* frees of what was not allocated */
	__u64 lost;		/* objects that no list took, since others were always faster */
	__u64 zero;
	__u64 lists[XK_HEAP_CLASSES];	/* free objects of all CPUs */
};

/* One of each CPU. */
struct xk_heap_cpu {
	__u64 lists[XK_HEAP_CLASSES];	/* some free objects */
	__u64 rest[XK_HEAP_CLASSES];	/* what is left of a span: its start, and its end above */
	__u64 allocated;		/* objects */
	__u64 freed;
	__u64 runs;		/* that took a lock */
	__u64 faults;		/* accesses where no page is, of runs that have not ended */
	__u64 fault;		/* the address of the last one */
	__u64 ip;		/* and its instruction */
	__u64 unused[10];
};

/* Wakes user space when spans run out. */
struct {
	int (*type)[27];	/* BPF_MAP_TYPE_RINGBUF */
	int (*max_entries)[4096];
} xk_heap_wanted __attribute__((section(".maps"), used));

static __u32 (*const xk_heap_this_cpu)(void) = (void *)8;	/* bpf_get_smp_processor_id() */
/* bpf_ringbuf_output() */
static long (*const xk_heap_output)(void *map, void *data, __u64 size, __u64 flags) = (void *)130;

/*
 * Tests put a run here that comes between reading a word and exchanging it: of a list, or of the
 * rest of a span, from which it may take so many units.
 */
#ifndef XK_HEAP_BETWEEN
#define XK_HEAP_BETWEEN(word, units)
#endif

/* How often a list is tried that somebody else changes. Who fails takes another way. */
#define XK_HEAP_TRIES		4

xk_heap_inline void __heap *xk_heap_at(__u64 offset)
{
	return (void __heap *)(XK_HEAP_ADDRESS + offset);
}

xk_heap_inline struct xk_heap_control __heap *xk_heap_control(void)
{
	XK_USE_HEAP();
	return xk_heap_at(XK_HEAP_CONTROL);
}

/* The same number, which the verifier does not know any longer. */
xk_heap_inline __u64 xk_heap_any(__u64 number)
{
	return number | *(volatile __u64 __heap *)&xk_heap_control()->zero;
}

xk_heap_inline struct xk_heap_cpu __heap *xk_heap_cpu(void)
{
	return xk_heap_at(XK_HEAP_CPUS + (__u64)xk_heap_this_cpu() * sizeof(struct xk_heap_cpu));
}

/*
 * A list of free objects is a word: the first object in units of 16 bytes (28 bits), the number of
 * objects (6 bits), and a count of changes (30 bits). Each object's first 4 bytes are the next one.
 * Who pops reads the next object of one that may be in use again by then; the count of changes is
 * another one in that case, and the exchange fails.
 */
#define XK_LIST_OBJECT(word)	((word) & 0xfffffff)
#define XK_LIST_LENGTH(word)	((word) >> 28 & 63)
#define XK_LIST_MOST		63
#define XK_LIST(object, length, before)	\
	((__u64)(object) | (__u64)(length) << 28 | (((before) >> 34) + 1) << 34)

/* An object's offset, or 0. */
xk_heap_apart __u64 xk_heap_pop(__u64 __heap *list)
{
#pragma clang loop unroll(full)
	for (int try = 0; try < XK_HEAP_TRIES; try++) {
		__u64 word = *(volatile __u64 __heap *)list;
		__u64 object = XK_LIST_OBJECT(word), length = XK_LIST_LENGTH(word);
		__u32 next;

		if (!object)
			return 0;
		next = *(volatile __u32 __heap *)xk_heap_at(object << 4);
		XK_HEAP_BETWEEN(list, 0);
		length -= length != 0;
		if (__sync_val_compare_and_swap(list, word,
						XK_LIST(XK_LIST_OBJECT(next), length, word)) == word)
			return object << 4;
	}
	return 0;
}

/* One attempt: 1 if the object is in the list, 0 if somebody else was faster, -1 if it is full. */
xk_heap_inline int xk_heap_push(__u64 __heap *list, __u64 offset, int limited)
{
	__u64 word = *(volatile __u64 __heap *)list;
	__u64 length = XK_LIST_LENGTH(word);

	if (length < XK_LIST_MOST)
		length++;
	else if (limited)
		return -1;
	*(volatile __u32 __heap *)xk_heap_at(offset) = XK_LIST_OBJECT(word);
	XK_HEAP_BETWEEN(list, 0);
	return __sync_val_compare_and_swap(list, word,
					   XK_LIST(offset >> 4, length, word)) == word;
}

/* The size class of a size that is not too large. */
xk_heap_apart __u32 xk_heap_class(__u64 size)
{
	__u32 doublings = 0;
	__u64 n;

	if (size <= 128)
		return size ? (size - 1) >> 4 : 0;
	if (size <= XK_HEAP_SPAN / 2) {
		n = (size - 1) >> 5;
		if (n >= 64) {
			n >>= 4;
			doublings += 4;
		}
		if (n >= 16) {
			n >>= 2;
			doublings += 2;
		}
		if (n >= 8) {
			n >>= 1;
			doublings++;
		}
		return 8 + 4 * doublings + (__u32)n - 4;
	}
	n = (size - 1) / XK_HEAP_SPAN;
	if (n >= 256) {
		n >>= 8;
		doublings += 8;
	}
	if (n >= 16) {
		n >>= 4;
		doublings += 4;
	}
	if (n >= 4) {
		n >>= 2;
		doublings += 2;
	}
	if (n >= 2)
		doublings++;
	return XK_HEAP_SMALL + doublings + (n != 0);
}

/* Bytes of an object of a class; of a large one, the bytes of its spans. */
xk_heap_apart __u64 xk_heap_size(__u32 class)
{
	if (class < 8)
		return (class + 1) << 4;
	if (class < XK_HEAP_SMALL)
		return (32ull << ((class - 8) >> 2)) * (5 + ((class - 8) & 3));
	return (__u64)XK_HEAP_SPAN << (class - XK_HEAP_SMALL);
}

xk_heap_inline void xk_heap_wake(__u64 bytes)
{
	xk_heap_output(&xk_heap_wanted, &bytes, sizeof(bytes), 0);
}

/* Spans that have never been used; their offset, or 0. */
xk_heap_apart __u64 xk_heap_fresh(__u64 bytes)
{
	struct xk_heap_control __heap *control = xk_heap_control();

	for (int try = 0; try < 16; try++) {
		__u64 fresh = *(volatile __u64 __heap *)&control->fresh;
		__u64 ready = *(volatile __u64 __heap *)&control->ready;

		if (!fresh || fresh + bytes > ready) {
			xk_heap_wake(bytes);
			return 0;
		}
		if (__sync_val_compare_and_swap(&control->fresh, fresh, fresh + bytes) != fresh)
			continue;
		if (ready - fresh - bytes < control->wanted)
			xk_heap_wake(bytes);
		return fresh;
	}
	return 0;
}

xk_heap_inline __u8 __heap *xk_heap_kind(__u64 offset)
{
	return (__u8 __heap *)xk_heap_at(XK_HEAP_KINDS) + offset / XK_HEAP_SPAN;
}

/* Nothing is ever lost, but for so many attempts that somebody else has won. */
xk_heap_apart void xk_heap_give(__u32 class, __u64 offset)
{
	struct xk_heap_control __heap *control = xk_heap_control();

	for (int try = 0; try < 32; try++) {
		if (xk_heap_push(&control->lists[class], offset, 0))
			return;
	}
	__sync_fetch_and_add(&control->lost, 1);
}

/* Whole spans, and what they are from now on; 0 without memory. */
xk_heap_inline __u64 xk_heap_spans(__u32 spans, __u32 kind)
{
	struct xk_heap_control __heap *control = xk_heap_control();
	__u64 at = xk_heap_pop(&control->lists[spans]);

	if (!at)
		at = xk_heap_fresh(xk_heap_size(spans));
	if (at)
		*xk_heap_kind(at) = kind + 1;
	return at;
}

/* The next object of so many 16 bytes in what is left of a span, or 0. */
xk_heap_apart __u64 xk_heap_next(__u64 __heap *rest, __u64 units)
{
	for (int try = 0; try < 16; try++) {
		__u64 word = *(volatile __u64 __heap *)rest;
		__u64 at = (__u32)word;

		if (at + units > word >> 32)
			return 0;
		XK_HEAP_BETWEEN(rest, units);
		if (__sync_val_compare_and_swap(rest, word, word + units) == word)
			return at << 4;
	}
	return 0;
}

/* A small object, from the rest of this CPU's span, or from a new span. */
xk_heap_inline __u64 xk_heap_carve(struct xk_heap_cpu __heap *cpu, __u32 class)
{
	__u64 units = xk_heap_any(xk_heap_size(class) >> 4);
	__u64 __heap *rest = &cpu->rest[class];
	__u64 at = xk_heap_next(rest, units);
	__u64 left, span, word;

	if (at)
		return at;
	left = *(volatile __u64 __heap *)rest;
	span = xk_heap_spans(XK_HEAP_SMALL, class);
	if (!span)
		return 0;
	word = ((span >> 4) + units) | (span + XK_HEAP_SPAN) >> 4 << 32;
	if ((__u32)left + units > left >> 32 &&
	    __sync_val_compare_and_swap(rest, left, word) == left)
		return span;
	/* A run that interrupted this one, or another CPU's, was faster. There is a new span. */
	*xk_heap_kind(span) = XK_HEAP_SMALL + 1;
	xk_heap_give(XK_HEAP_SMALL, span);
	return xk_heap_next(rest, units);
}

/* What is not in this CPU's list. */
xk_heap_apart __u64 xk_heap_slow(__u32 class)
{
	struct xk_heap_control __heap *control = xk_heap_control();
	__u64 at;

	if (class >= XK_HEAP_CLASSES)
		return 0;
	if (class >= XK_HEAP_SMALL)
		return xk_heap_spans(class, class);
	at = xk_heap_pop(&control->lists[class]);
	return at ? at : xk_heap_carve(xk_heap_cpu(), class);
}

/* A block of so many bytes, aligned to 16; NULL without memory, and above XK_HEAP_LARGEST. */
xk_heap_inline void __heap *xk_heap_take(__u64 size)
{
	struct xk_heap_control __heap *control = xk_heap_control();
	struct xk_heap_cpu __heap *cpu = xk_heap_cpu();
	__u64 at = 0, there;

	if (size <= XK_HEAP_LARGEST) {
		__u32 class = xk_heap_any(xk_heap_class(size));

		at = xk_heap_pop(&cpu->lists[class]);
		if (!at)
			at = xk_heap_slow(class);
	}
	if (at)
		__sync_fetch_and_add(&cpu->allocated, 1);
	else
		__sync_fetch_and_add(&control->refused, 1);
	/* No branch: if the verifier knew NULL, it would follow each failure to the end. */
	at = xk_heap_any(at);
	there = at | -at;
	asm volatile("%0 s>>= 63" : "+r"(there));
	return (void __heap *)((XK_HEAP_ADDRESS + at) & there);
}

/* Gives a block back. Its kind is its class and 1. */
xk_heap_inline void xk_heap_put(struct xk_heap_cpu __heap *cpu, __u32 kind, __u64 offset)
{
	__sync_fetch_and_add(&cpu->freed, 1);
	if (kind <= XK_HEAP_SMALL && xk_heap_push(&cpu->lists[kind - 1], offset, 1) > 0)
		return;
	xk_heap_give(kind - 1, offset);
}

/* xk_free(), for functions that are that themselves. */
xk_heap_inline void xk_heap_free(void __heap *object)
{
	struct xk_heap_control __heap *control = xk_heap_control();
	struct xk_heap_cpu __heap *cpu = xk_heap_cpu();
	__u64 offset = (__u32)(__u64)object;
	__u32 kind;

	if (!offset)
		return;
	kind = *xk_heap_kind(offset);
	if (!kind || kind > XK_HEAP_CLASSES || offset & 15) {
		__sync_fetch_and_add(&control->invalid, 1);
		return;
	}
	xk_heap_put(cpu, kind, offset);
}

/*
 * Memory for an object of this size, aligned to 16 bytes, with any content; NULL without memory,
 * and above XK_HEAP_LARGEST. A large one may be refused at first, until user space has added pages.
 */
static __attribute__((__noinline__, __unused__))
void __heap *xk_malloc(__u64 size)
{
	return xk_heap_take(size);
}

/* Gives back what xk_malloc() or xk_calloc() returned; NULL is nothing. */
static __attribute__((__noinline__, __unused__))
void xk_free(void __heap *object)
{
	xk_heap_free(object);
}

/* As xk_malloc(), for so many objects, filled with zeros. Its loop makes `xk flex` necessary. */
static __attribute__((__noinline__, __unused__))
void __heap *xk_calloc(__u64 number, __u64 size)
{
	__u64 bytes = number * size, words;
	__u64 __heap *object;

	if (number && size > XK_HEAP_LARGEST / number)
		return (void __heap *)0;
	object = xk_malloc(bytes);
	/* If the verifier knew the number of turns, it would follow each of them. */
	words = object ? xk_heap_any((bytes + 7) / 8) : 0;
	/* Volatile: of a plain loop, clang makes a call of memset(), which it cannot translate here. */
	for (__u64 at = 0; at < words; at++)
		((volatile __u64 __heap *)object)[at] = 0;
	return (void __heap *)xk_heap_any((__u64)object);
}

#ifdef XK_HEAP_DEBUG
#include "xk_heap_debug.bpf.h"
#endif

#ifdef _XK_FLEX_BPF_H
#include "xk_fault.bpf.h"
#else
#define XK_HEAP_FAULTS
#endif

#endif
