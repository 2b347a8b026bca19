// SPDX-License-Identifier: GPL-2.0-only
/*
 * The allocation of slots, in chunks. The kernel allocates text for modules and kprobes with
 * functions that it does not export.
 */
#include <linux/bitmap.h>
#include <linux/execmem.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/set_memory.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "base/lock.h"
#include "text/internal.h"
#include "text/slot.h"

#define INT3 0xcc
#define CHUNK_SLOTS 1024
#define CHUNK_LEN (CHUNK_SLOTS * XK_SLOT_LEN)

struct chunk {
	struct list_head list;
	unsigned long base;
	DECLARE_BITMAP(used, CHUNK_SLOTS);
};

/* Those with free slots come first. Protected by xk_lock. */
static LIST_HEAD(chunks);

static struct {
	unsigned long alloc, free, protect;
	bool searched;
} functions;

static bool find_functions(void)
{
	static_assert(__same_type(execmem_alloc, void *(enum execmem_type, size_t)));
	static_assert(__same_type(execmem_free, void(void *)));
	static_assert(__same_type(set_memory_rox, int(unsigned long, int)));

	if (!functions.searched) {
		functions.alloc = xk_internal_find("execmem_alloc");
		functions.free = xk_internal_find("execmem_free");
		functions.protect = xk_internal_find("set_memory_rox");
		functions.searched = true;
	}
	return functions.alloc && functions.free && functions.protect;
}

const char *xk_slots_missing(void)
{
	lockdep_assert_held(&xk_lock);
	if (xk_internal_missing() || !find_functions())
		return "this kernel lacks what detours need: see its log";
	return NULL;
}

static void free_chunk(struct chunk *chunk)
{
	xk_far(chunk->base, 0, 0, 0, functions.free);
	kfree(chunk);
}

/* No slot contains what was in this memory before. `breakpoints` is a page of them. */
static void clear_slots(const struct chunk *chunk, const void *breakpoints)
{
	unsigned long at;

	xk_text_lock();
	for (at = chunk->base; at < chunk->base + CHUNK_LEN; at += PAGE_SIZE)
		xk_text_write(at, breakpoints, PAGE_SIZE);
	xk_text_unlock();
}

static bool fill_chunk(struct chunk *chunk)
{
	void *breakpoints = kmalloc(PAGE_SIZE, GFP_KERNEL);

	if (!breakpoints)
		return false;
	memset(breakpoints, INT3, PAGE_SIZE);
	chunk->base = xk_far(EXECMEM_KPROBES, CHUNK_LEN, 0, 0, functions.alloc);
	/* int: the upper half of the register is undefined. */
	if (chunk->base &&
	    (int)xk_far(chunk->base, CHUNK_LEN / PAGE_SIZE, 0, 0, functions.protect)) {
		xk_far(chunk->base, 0, 0, 0, functions.free);
		chunk->base = 0;
	}
	if (chunk->base)
		clear_slots(chunk, breakpoints);
	kfree(breakpoints);
	return chunk->base;
}

static struct chunk *create_chunk(void)
{
	struct chunk *chunk = kzalloc(sizeof(*chunk), GFP_KERNEL);

	if (!chunk)
		return NULL;
	if (!fill_chunk(chunk)) {
		kfree(chunk);
		return NULL;
	}
	list_add(&chunk->list, &chunks);
	return chunk;
}

unsigned long xk_slot_get(void)
{
	struct chunk *chunk;
	unsigned int bit;

	lockdep_assert_held(&xk_lock);
	chunk = list_first_entry_or_null(&chunks, struct chunk, list);
	if (!chunk || bitmap_full(chunk->used, CHUNK_SLOTS))
		chunk = create_chunk();
	if (!chunk)
		return 0;
	bit = find_first_zero_bit(chunk->used, CHUNK_SLOTS);
	__set_bit(bit, chunk->used);
	if (bitmap_full(chunk->used, CHUNK_SLOTS))
		list_move_tail(&chunk->list, &chunks);
	return chunk->base + bit * XK_SLOT_LEN;
}

void xk_slot_put(unsigned long address)
{
	struct chunk *chunk;

	lockdep_assert_held(&xk_lock);
	list_for_each_entry(chunk, &chunks, list) {
		if (address - chunk->base >= CHUNK_LEN)
			continue;
		__clear_bit((address - chunk->base) / XK_SLOT_LEN, chunk->used);
		list_move(&chunk->list, &chunks);
		return;
	}
}

void xk_slots_exit(void)
{
	struct chunk *chunk, *next;

	list_for_each_entry_safe(chunk, next, &chunks, list)
		free_chunk(chunk);
	INIT_LIST_HEAD(&chunks);
}
