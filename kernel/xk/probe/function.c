// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions in which instructions are to be probed. Unlike a function of a tune, there is no
 * analysed code to compare with. So the running bytes are decoded from the start of the function.
 * What kprobes and xk.ko changed in them is undone first. What the kernel itself patches keeps its
 * length.
 */
#include <linux/bitmap.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "core/verify.h"
#include "probe/function.h"
#include "text/internal.h"
#include "text/relocate.h"
#include "text/symbol.h"
#include "uapi/xk.h"

#define INT3 0xcc
#define JMP32 0xe9

void xk_function_free(struct xk_function *function)
{
	kvfree(function->text);
	kvfree(function->targets);
	bitmap_free(function->begins);
	memset(function, 0, sizeof(*function));
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
	u32 len = function->len, at;

	function->text = kvmalloc(len, GFP_KERNEL);
	/* Each instruction has at least one byte, and at most one target. */
	function->targets = kvmalloc_array(len, sizeof(*function->targets), GFP_KERNEL);
	function->begins = bitmap_zalloc(len, GFP_KERNEL);
	if (!function->text || !function->targets || !function->begins)
		return "no memory";
	if (copy_from_kernel_nofault(function->text, (void *)function->start, len))
		return "its text cannot be read";
	xk_undo_own(function->text, function->start, len);
	for (at = 0; at < len; at++)
		if (function->text[at] == INT3 || function->text[at] == JMP32)
			undo_kprobe(function, at);
	return NULL;
}

static int by_offset(const void *a, const void *b)
{
	u32 left = *(const u32 *)a, right = *(const u32 *)b;

	return left < right ? -1 : left > right;
}

/* Up to the first byte that cannot be decoded, which may be padding. */
static void decode(struct xk_function *function)
{
	u32 at = 0;

	while (at < function->len) {
		unsigned long target;
		unsigned int size = xk_branch(function->text + at, function->len - at,
					      function->start + at, xk_insn_decode, &target);

		if (!size)
			break;
		__set_bit(at, function->begins);
		if (target - function->start < function->len)
			function->targets[function->nr_targets++] = target - function->start;
		at += size;
	}
	sort(function->targets, function->nr_targets, sizeof(function->targets[0]), by_offset,
	     NULL);
}

const char *xk_function_read(struct xk_function *function, unsigned long address)
{
	const char *why;

	if (function->text && address - function->start < function->len)
		return NULL;
	xk_function_free(function);
	if (!find_symbol(function, address))
		return "no function of the running kernel is there";
	if (!strcmp(function->module_name, KBUILD_MODNAME))
		return "the code of xk.ko itself cannot be probed";
	if (!function->len || function->len > XK_MAX_TEXT)
		return "its function is too long";
	why = read_text(function);
	if (!why)
		decode(function);
	return why;
}

bool xk_function_begins(const struct xk_function *function, unsigned long address)
{
	return test_bit(address - function->start, function->begins);
}

bool xk_function_enters(const struct xk_function *function, const struct xk_window *window)
{
	u32 start = window->address - function->start;
	unsigned int low = 0, high = function->nr_targets;

	/* The first target after the start of the window. */
	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (function->targets[middle] <= start)
			low = middle + 1;
		else
			high = middle;
	}
	return low < function->nr_targets && function->targets[low] < start + window->len;
}

const char *xk_function_hold(const struct xk_function *function, struct module **module)
{
	const struct module *found;
	const char *why = NULL;

	*module = NULL;
	if (!function->module_name[0])
		return NULL;
	found = xk_module_get(function->module_name);
	if (!found)
		return "its module is being loaded or removed";
	if (found->state != MODULE_STATE_LIVE || !try_module_get((struct module *)found))
		why = "its module is being loaded or removed";
	else
		*module = (struct module *)found;
	xk_module_put(found);
	return why;
}
