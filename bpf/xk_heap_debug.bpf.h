/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For extensions (docs/flex.md): the debug mode of the heap. xk_heap.bpf.h includes this file if
 * XK_HEAP_DEBUG is defined; `xk flex run --debug-heap` defines it. xk_malloc(), xk_calloc() and
 * xk_free() are macros then, which know the line where they are called.
 *
 * Each object has a header, and a red zone before and behind the bytes that were asked for. When it
 * is freed, its red zones are compared, and its first bytes are poisoned. They are compared when
 * the memory is allocated again. What is wrong is counted by its kind, and the first object of each
 * kind is noted (struct xk_heap_damage). No run ends for it. User space finds the same in the whole
 * heap at any time (xk_flex::Heap::damaged()).
 */
#ifndef _XK_HEAP_DEBUG_BPF_H
#define _XK_HEAP_DEBUG_BPF_H

/*
 * In front of each object, and shared with user space. A line is a number, see XK_HEAP_LINE. The
 * red zone behind the object begins with its first byte that was not asked for, and ends with the
 * next word: it has 9 to 16 bytes.
 */
struct xk_heap_debug {
	__u32 next;		/* of a list of free objects */
	__u32 freed;		/* the line that freed it last */
	__u64 state;		/* below one of these states: the line that allocated it */
	__u64 asked;		/* bytes; above them the number of its allocations */
	__u64 before;		/* the red zone before the object */
};

#define XK_HEAP_HEADER		sizeof(struct xk_heap_debug)
#define XK_HEAP_AROUND		(XK_HEAP_HEADER + 16)	/* beside the whole words of an object */

#define XK_HEAP_LIVE		0x6c697665u
#define XK_HEAP_CHANGING	0x62757379u	/* it is being allocated, or freed */
#define XK_HEAP_FREED		0x66726565u

#define XK_HEAP_RED		0xbbcbdbebfb8b9babull
#define XK_HEAP_POISON		0x6b6b6b6b6b6b6b6bull

/* So many words of an object are poisoned at most. */
#define XK_HEAP_POISONED	64

/* What can be wrong. */
#define XK_HEAP_BEHIND		0	/* somebody wrote behind an object */
#define XK_HEAP_BEFORE		1	/* and before it */
#define XK_HEAP_AFTER		2	/* and into one that was freed */
#define XK_HEAP_TWICE		3	/* an object was freed again */
#define XK_HEAP_NOTHING		4	/* it is no object, or its header is destroyed */

#define XK_HEAP_CLAIMED		5	/* nothing */

/* How often, and the first one. */
struct xk_heap_damage {
	__u64 count;
	__u64 object;		/* 0: it is not noted yet */
	__u64 at;		/* where the damage begins, or what was freed */
	__u64 size;
	__u32 allocated;	/* lines */
	__u32 freed;
	__u32 found;		/* the call that found it */
	__u32 unused;
};

/* One of each kind. */
#define XK_HEAP_DAMAGES		(XK_HEAP_CONTROL + 2048)

/* The header of what is no object. Its bytes are 0. */
#define XK_HEAP_NO_BLOCK	(XK_HEAP_CONTROL + 3072)

/*
 * A line is a text in a section, and so in a map, of its own. Its number is the distance to this
 * text, which is 0, and stands for user space.
 */
#define XK_HEAP_LINES		".rodata.xk_heap_lines"

static const char xk_heap_lines[] __attribute__((section(XK_HEAP_LINES), used)) = "xk_heap_lines";

#define XK_HEAP_TEXT(number)	#number
#define XK_HEAP_NUMBER(number)	XK_HEAP_TEXT(number)

#define XK_HEAP_LINE ({								\
	static const char xk_heap_line[] __attribute__((section(XK_HEAP_LINES))) =	\
		__FILE_NAME__ ":" XK_HEAP_NUMBER(__LINE__);			\
	xk_heap_line_number(xk_heap_line);					\
})

/* The verifier lets pointers be subtracted, and knows nothing of what comes out. */
xk_heap_inline __u32 xk_heap_line_number(const char *line)
{
	__u64 number = (__u64)line, first = (__u64)xk_heap_lines;

	asm volatile("%0 -= %1" : "+r"(number) : "r"(first));
	return number;
}

/* All bits, if the number is not 0. */
xk_heap_inline __u64 xk_heap_mask(__u64 number)
{
	__u64 mask = number | -number;

	asm volatile("%0 s>>= 63" : "+r"(mask));
	return mask;
}

/*
 * This offset, if there are more bytes, or 0. In assembly, so that clang neither makes branches of
 * it nor computes it for many words before it needs them. Newer verifiers follow both values of
 * what is either 0 or -1 if a constant is combined with it, but not if it is with a constant.
 */
xk_heap_inline __u64 xk_heap_within(__u64 at, __u64 bytes)
{
	__u64 left = at;

	asm volatile("%1 -= %2\n%1 s>>= 63\n%0 &= %1" : "+r"(at), "+r"(left) : "r"(bytes));
	return at;
}

xk_heap_inline struct xk_heap_debug __heap *xk_heap_block(__u64 offset)
{
	return xk_heap_at(offset);
}

xk_heap_inline __u64 __heap *xk_heap_word(__u64 offset)
{
	return xk_heap_at(offset);
}

/*
 * The verifier follows global functions once, and not from each call. They have no loops, which
 * `xk flex --all` would instrument.
 */
#define xk_heap_once		__attribute__((__noinline__))

/* Counts damage, and notes the object of this block if it is the first one. */
xk_heap_once int xk_heap_found(__u32 kind, __u64 block, __u64 at, __u32 line)
{
	struct xk_heap_debug __heap *object = xk_heap_block(block);
	struct xk_heap_damage __heap *damage;

	damage = xk_heap_at(XK_HEAP_DAMAGES + kind * sizeof(*damage));
	if (__sync_fetch_and_add(&damage->count, 1))
		return 0;
	damage->at = XK_HEAP_ADDRESS + at;
	damage->size = (__u32)object->asked;
	damage->allocated = object->state;
	damage->freed = object->freed;
	damage->found = line;
	*(volatile __u64 __heap *)&damage->object = XK_HEAP_ADDRESS + block + XK_HEAP_HEADER;
	return 0;
}

/*
 * Poisons an object, or so many words of it; a word at least, which is a red zone if there is no
 * other. There is one way through it: words behind the last one are the first one again.
 */
xk_heap_once int xk_heap_poison(__u64 object, __u64 bytes)
{
#pragma clang loop unroll(full)
	for (__u64 at = 0; at < XK_HEAP_POISONED * 8; at += 8) {
		__u64 word = object + xk_heap_within(at, bytes);

		*(volatile __u64 __heap *)xk_heap_word(word) = XK_HEAP_POISON;
	}
	return 0;
}

/* The offset of the first of these words that is something else, or 0. */
xk_heap_once __u64 xk_heap_unpoisoned(__u64 object, __u64 bytes)
{
	__u64 found = 0;

#pragma clang loop unroll(full)
	for (__u64 at = 0; at < XK_HEAP_POISONED * 8; at += 8) {
		__u64 word = object + xk_heap_within(at, bytes);
		__u64 is_other = *(volatile __u64 __heap *)xk_heap_word(word) ^ XK_HEAP_POISON;

		found |= word & xk_heap_mask(is_other) & ~xk_heap_mask(found);
	}
	return found;
}

/* How many bytes of an object are poisoned, if its block has so many. */
xk_heap_inline __u64 xk_heap_poisoned(__u64 size, __u64 block)
{
	__u64 bytes = (size + 7) & ~7ull, most = block - XK_HEAP_AROUND + 8;

	return xk_heap_any(bytes < most ? bytes : most);
}

/* A block that is allocated: whether somebody has written to it since it was freed. */
xk_heap_once int xk_heap_reused(__u64 block, __u32 line)
{
	struct xk_heap_debug __heap *object = xk_heap_block(block);
	__u64 at, bytes;

	if (object->state >> 32 != XK_HEAP_FREED)
		return 0;
	/* A span may have been another class's. */
	bytes = xk_heap_size(*xk_heap_kind(block) - 1);
	bytes = xk_heap_poisoned((__u32)object->asked, bytes);
	at = xk_heap_unpoisoned(block + XK_HEAP_HEADER, bytes);
	if (at)
		xk_heap_found(XK_HEAP_AFTER, block, at, line);
	return 0;
}

/* A block becomes an object. Who reads its state and count twice sees whether it has changed. */
xk_heap_inline void xk_heap_mark(__u64 block, __u64 size, __u32 line)
{
	volatile struct xk_heap_debug __heap *object = xk_heap_block(block);
	volatile __u64 __heap *end = xk_heap_word(block + XK_HEAP_HEADER + (size & ~7ull));

	object->state = (__u64)XK_HEAP_CHANGING << 32;
	object->asked = ((object->asked >> 32) + 1) << 32 | size;
	object->before = XK_HEAP_RED;
	end[0] = XK_HEAP_RED;
	end[1] = XK_HEAP_RED;
	object->state = (__u64)XK_HEAP_LIVE << 32 | line;
}

/* The address of an object, or 0. */
xk_heap_apart __u64 xk_heap_debug_malloc(__u64 size, __u32 line)
{
	/* Also too large with what is around it. */
	__u64 bytes = ((size & 0x1ffffff8) + XK_HEAP_AROUND) | size >> 29 << 29;
	void __heap *taken = xk_heap_take(bytes);
	__u64 block = (__u32)(__u64)taken, object = 0;

	if (block) {
		xk_heap_reused(block, line);
		xk_heap_mark(block, size, line);
		object = (__u64)taken + XK_HEAP_HEADER;
	}
	return xk_heap_any(object);
}

/* The red zones of an object that is freed. */
xk_heap_inline void xk_heap_compare(__u64 block, __u64 size, __u32 line)
{
	volatile struct xk_heap_debug __heap *object = xk_heap_block(block);
	volatile __u64 __heap *end = xk_heap_word(block + XK_HEAP_HEADER + (size & ~7ull));
	__u64 behind = ((end[0] ^ XK_HEAP_RED) >> (size & 7) * 8) | (end[1] ^ XK_HEAP_RED);

	if (object->before != XK_HEAP_RED)
		xk_heap_found(XK_HEAP_BEFORE, block, block + XK_HEAP_HEADER - 8, line);
	if (behind)
		xk_heap_found(XK_HEAP_BEHIND, block, block + XK_HEAP_HEADER + size, line);
}

/*
 * If an object begins here, in a block of so many bytes, it is the caller's now. Else, or if it is
 * freed already, what is wrong.
 */
xk_heap_once int xk_heap_claim(__u64 block, __u64 bytes, __u64 inside)
{
	struct xk_heap_debug __heap *object = xk_heap_block(block);
	__u64 state = *(volatile __u64 __heap *)&object->state, own;

	if (inside)
		return XK_HEAP_NOTHING;
	own = (__u64)XK_HEAP_CHANGING << 32 | (__u32)state;
	if (state >> 32 == XK_HEAP_LIVE && (object->asked & 0xfffffff8) + XK_HEAP_AROUND <= bytes) {
		if (__sync_val_compare_and_swap(&object->state, state, own) == state)
			return XK_HEAP_CLAIMED;
		return XK_HEAP_TWICE;
	}
	if (state >> 32 == XK_HEAP_FREED || state >> 32 == XK_HEAP_CHANGING)
		return XK_HEAP_TWICE;
	return XK_HEAP_NOTHING;
}

xk_heap_apart int xk_heap_debug_free(__u64 freed, __u32 line)
{
	__u64 offset = (__u32)freed, block = (__u32)(offset - XK_HEAP_HEADER);
	volatile struct xk_heap_debug __heap *object;
	__u64 bytes, inside, size;
	__u32 kind, wrong;

	if (!offset)
		return 0;
	kind = *xk_heap_kind(block);
	if (!kind || kind > XK_HEAP_CLASSES) {
		xk_heap_found(XK_HEAP_NOTHING, XK_HEAP_NO_BLOCK, offset, line);
		__sync_fetch_and_add(&xk_heap_control()->invalid, 1);
		return 0;
	}
	bytes = xk_heap_size(kind - 1);
	inside = block % XK_HEAP_SPAN % bytes;
	block -= inside;
	object = xk_heap_block(block);
	wrong = xk_heap_claim(block, bytes, inside);
	if (wrong != XK_HEAP_CLAIMED) {
		xk_heap_found(wrong, block, offset, line);
		__sync_fetch_and_add(&xk_heap_control()->invalid, 1);
		return 0;
	}
	size = (__u32)object->asked;
	xk_heap_compare(block, size, line);
	xk_heap_poison(block + XK_HEAP_HEADER, xk_heap_poisoned(size, bytes));
	object->freed = line;
	object->state = (__u64)XK_HEAP_FREED << 32 | (__u32)object->state;
	xk_heap_put(xk_heap_cpu(), kind, block);
	return 0;
}

/* As xk_calloc(). The rest of the last word is the red zone. */
static __attribute__((__noinline__, __unused__))
void __heap *xk_heap_debug_calloc(__u64 number, __u64 size, __u32 line)
{
	__u64 bytes = number * size, words;
	volatile __u64 __heap *object;

	if (number && size > XK_HEAP_LARGEST / number)
		return (void __heap *)0;
	object = (void __heap *)xk_heap_debug_malloc(bytes, line);
	words = object ? xk_heap_any(bytes / 8) : 0;
	for (__u64 at = 0; at < words; at++)
		object[at] = 0;
	if (object)
		object[words] &= -1ull << (bytes & 7) * 8;
	return (void __heap *)xk_heap_any((__u64)object);
}

#define xk_malloc(size)		((void __heap *)xk_heap_debug_malloc(size, XK_HEAP_LINE))
#define xk_calloc(number, size)	xk_heap_debug_calloc(number, size, XK_HEAP_LINE)
#define xk_free(object)		((void)xk_heap_debug_free((__u64)(object), XK_HEAP_LINE))

#endif
