// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions in which instructions are to be probed. Unlike a function of a tune, there is no
 * analysed code to compare with. So the running bytes are decoded from the start of the function.
 * What kprobes and xk.ko changed in them is undone first. What the kernel itself patches keeps its
 * length.
 */
#include <linux/bitmap.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "core/verify.h"
#include "probe/function.h"
#include "text/internal.h"
#include "text/relocate.h"
#include "text/shape.h"
#include "text/symbol.h"
#include "uapi/xk_probe.h"

#define INT3 0xcc
#define CALL 0xe8
#define JMP32 0xe9

static void free_buffers(struct xk_function *function)
{
	kvfree(function->text);
	bitmap_free(function->targets);
	bitmap_free(function->begins);
	bitmap_free(function->fixed);
	function->text = NULL;
	function->fixed = NULL;
	function->targets = NULL;
	function->begins = NULL;
	function->capacity = 0;
}

void xk_function_free(struct xk_function *function)
{
	free_buffers(function);
	kvfree(function->shapes);
	memset(function, 0, sizeof(*function));
}

/* Makes room for the text, and keeps it for the next function. */
static bool make_room(struct xk_function *function)
{
	u32 capacity = max_t(u32, roundup_pow_of_two(function->len), PAGE_SIZE);

	/* Without memory, the decoder is asked about each instruction. */
	if (!function->shapes)
		function->shapes = kvzalloc(sizeof(*function->shapes), GFP_KERNEL | __GFP_NOWARN);
	if (function->len <= function->capacity)
		return true;
	free_buffers(function);
	function->text = kvzalloc(capacity + XK_SHAPE_READ, GFP_KERNEL);
	function->targets = bitmap_alloc(capacity, GFP_KERNEL);
	function->begins = bitmap_alloc(capacity, GFP_KERNEL);
	function->fixed = bitmap_alloc(capacity, GFP_KERNEL);
	if (!function->text || !function->targets || !function->begins || !function->fixed)
		free_buffers(function);
	else
		function->capacity = capacity;
	return function->capacity;
}

#ifdef CONFIG_OPTPROBES
/* The four bytes after the first that the jump of an optimised kprobe replaced. */
static const u8 *copied_by(const struct kprobe *kprobe)
{
	return container_of(kprobe, const struct optimized_kprobe, kp)->optinsn.copied_insn;
}
#endif

/* A kprobe replaced the first byte; an optimised one, five bytes. */
static void undo_kprobe(struct xk_function *function, u32 at)
{
	struct kprobe *kprobe;

	preempt_disable();
	kprobe = xk_kprobe_at(function->start + at);
	if (kprobe) {
#ifdef CONFIG_OPTPROBES
		if (function->text[at] == JMP32 && !list_empty(&kprobe->list) &&
		    function->len - at >= XK_JUMP_LEN)
			memcpy(function->text + at + 1, copied_by(kprobe), XK_JUMP_LEN - 1);
#endif
		function->text[at] = kprobe->opcode;
	}
	preempt_enable();
}

static bool find_symbol(struct xk_function *function, unsigned long address)
{
	struct xk_symbol symbol;

	if (!xk_symbol_at(address, function->name, &symbol))
		return false;
	function->start = address - symbol.offset;
	function->len = symbol.size;
	strscpy(function->module_name, symbol.module);
	return true;
}

static const char *read_text(struct xk_function *function)
{
	u32 len = function->len;

	if (copy_from_kernel_nofault(function->text, (void *)function->start, len))
		return "its text cannot be read";
	xk_undo_own(function->text, function->start, len);
	return NULL;
}

/* Functions that never return, and with whose calls many functions end. */
static const char *const fatal_names[] = { "__stack_chk_fail", "__fortify_panic" };
static unsigned long fatal[ARRAY_SIZE(fatal_names)];

static bool never_returns(unsigned long callee)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fatal); i++) {
		if (!fatal[i])
			fatal[i] = xk_internal_find(fatal_names[i]);
		if (fatal[i] && fatal[i] == callee)
			return true;
	}
	return false;
}

/* Whether control does not reach the end of the instruction from `at` to before `end`. */
static bool stops_flow(const struct xk_function *function, u32 at, u32 end)
{
	const u8 *bytes = function->text + at;
	unsigned long target;

	if (xk_ends_flow(bytes, end - at, xk_insn_decode))
		return true;
	xk_branch(bytes, end - at, function->start + at, xk_insn_decode, &target);
	return bytes[0] == CALL && never_returns(target);
}

/*
 * Padding is what follows the last instruction after which control does not go on, up to the next
 * symbol, if it does nothing and no branch of the function leads to it.
 */
u32 xk_function_padding(const struct xk_function *function)
{
	u32 start = function->len, at;

	if (!function->is_decoded)
		return function->len;
	while (true) {
		at = find_last_bit(function->begins, start);
		if (at == start)
			return function->len;
		if (!xk_is_padding(function->text + at, start - at, xk_insn_decode))
			break;
		start = at;
	}
	if (!stops_flow(function, at, start))
		return function->len;
	if (find_next_bit(function->targets, function->len, start) < function->len)
		return function->len;
	return start;
}

/*
 * Relative branches and calls would lead elsewhere from a copy: see can_boost() in
 * arch/x86/kernel/kprobes/core.c. Where the kernel patches such an instruction later (jump labels,
 * static calls, the function tracer), no kprobe becomes a jump: copy_optimized_instructions().
 * __copy_instruction() refuses a breakpoint that is no kprobe. The kernel fills its returns with
 * them.
 */
static bool is_never_copied(const u8 *bytes)
{
	switch (bytes[0]) {
	case 0x0f:
		return (bytes[1] & 0xf0) == 0x80;
	case 0x70 ... 0x7f:
	case 0xe0 ... 0xe3:
	case 0xeb:
	case INT3:
	case CALL:
	case JMP32:
		return true;
	default:
		return false;
	}
}

/* Up to the first byte that cannot be decoded. Probes begin where an instruction begins. */
static void decode(struct xk_function *function)
{
	u32 at = 0;

	bitmap_zero(function->begins, function->len);
	bitmap_zero(function->targets, function->len);
	bitmap_zero(function->fixed, function->len);
	while (at < function->len) {
		unsigned long target;
		unsigned int size;

		if (function->text[at] == INT3 || function->text[at] == JMP32)
			undo_kprobe(function, at);
		size = xk_shape_branch(function->shapes, function->text + at, function->len - at,
				       function->start + at, xk_insn_decode, &target);
		if (!size)
			break;
		__set_bit(at, function->begins);
		if (is_never_copied(function->text + at))
			__set_bit(at, function->fixed);
		if (target - function->start < function->len)
			__set_bit(target - function->start, function->targets);
		at += size;
	}
	function->is_decoded = at == function->len;
}

static const char *read_function(struct xk_function *function, unsigned long address)
{
	const char *why;

	if (!find_symbol(function, address))
		return "no function of the running kernel is there";
	if (!strcmp(function->module_name, KBUILD_MODNAME))
		return "the code of xk.ko itself cannot be probed";
	if (!function->len || function->len > XK_MAX_TEXT)
		return "its function is too long";
	if (!make_room(function))
		return "no memory";
	/*
	 * Kprobes change text under this lock. A probe whose bytes are in the text is found as long
	 * as they are. So what is undone is complete.
	 */
	xk_text_lock();
	why = read_text(function);
	if (!why)
		decode(function);
	xk_text_unlock();
	return why;
}

const char *xk_function_read(struct xk_function *function, unsigned long address)
{
	const char *why;

	if (address - function->start < function->len)
		return NULL;
	function->asked = false;
	why = read_function(function, address);
	if (why)
		function->len = 0;
	return why;
}

bool xk_function_begins(const struct xk_function *function, unsigned long address)
{
	return test_bit(address - function->start, function->begins);
}

bool xk_function_jump_may_begin(const struct xk_function *function, unsigned long address)
{
	u32 at = address - function->start, end = min(at + XK_JUMP_LEN, function->len);

	return test_bit(at, function->begins) && find_next_bit(function->fixed, end, at) >= end;
}

bool xk_function_is_long_call(const struct xk_function *function, unsigned long address)
{
	u32 at = address - function->start;

	return xk_is_long_call(function->text + at, function->len - at, xk_insn_decode);
}

bool xk_function_enters(const struct xk_function *function, const struct xk_window *window)
{
	u32 start = window->address - function->start, end = start + window->len;

	return find_next_bit(function->targets, end, start + 1) < end;
}

const char *xk_function_module(const struct xk_function *function, const struct module *coming,
			       const struct module **module)
{
	const struct module *found;
	const char *why = NULL;

	*module = NULL;
	if (!function->module_name[0])
		return NULL;
	/* Not in /sys/module yet. */
	if (coming && !strcmp(function->module_name, coming->name)) {
		*module = coming;
		return NULL;
	}
	found = xk_module_get(function->module_name);
	if (!found || found->state != MODULE_STATE_LIVE)
		why = "its module is being loaded or removed";
	else
		*module = found;
	xk_module_put(found);
	return why;
}
