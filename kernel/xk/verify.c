// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether a function is what the analysis saw: the address belongs to the symbol
 * and module, and every byte of it that the kernel does not patch itself is the
 * byte that was analysed. Our own probes in the function are known and looked
 * through; any other difference is refused by offset.
 *
 * Where user space does not know the address, since the module was not loaded,
 * it is the one function of that name in the module whose bytes are right.
 */
#include <linux/delay.h>
#include <linux/kallsyms.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "detour_batch.h"
#include "patch.h"
#include "poke.h"
#include "stubs.h"
#include "xk.h"

/* Functions of one name in one module. */
#define MAX_CANDIDATES 16

#define INT3 0xcc
#define JMP32 0xe9

/* A text patch under way looks like a mismatch for some microseconds. */
#define ATTEMPTS 3
#define ATTEMPT_INTERVAL_MS 20

/*
 * A symbol may share its address with another, whose name the lookup returned.
 * Kprobes resolve names; a disabled probe changes nothing in the kernel.
 */
static bool is_alias(const struct xk_place *place, u32 probed)
{
	char name[XK_MODULE_LEN + XK_SYMBOL_LEN + 1];
	struct kprobe kprobe = {
		.symbol_name = name,
		.offset = probed,
		.flags = KPROBE_FLAG_DISABLED,
	};
	bool same;

	snprintf(name, sizeof(name), "%s%s%s", place->module,
		 place->module[0] ? ":" : "", place->symbol);
	if (register_kprobe(&kprobe))
		return false;
	same = (unsigned long)kprobe.addr == place->function + probed;
	unregister_kprobe(&kprobe);
	return same;
}

/*
 * Which symbol the address lies in. The names are in `text`, KSYM_SYMBOL_LEN
 * bytes: the kernel prints "name+0x0/0x123 [module]", which is split in place.
 */
bool xk_symbol_at(unsigned long address, char *text, struct xk_symbol *symbol)
{
	char *plus, *bracket;
	int used = 0;

	sprint_symbol(text, address);
	plus = strrchr(text, '+');
	bracket = strstr(text, " [");
	symbol->name = text;
	symbol->module = "";
	if (!plus || sscanf(plus, "+0x%lx/0x%lx%n", &symbol->offset, &symbol->size, &used) != 2)
		return false;
	if (bracket) {
		symbol->module = bracket + 2;
		bracket[2 + strcspn(bracket + 2, "]")] = '\0';
	}
	*plus = '\0';
	return true;
}

/* `located`: the module itself says that the symbol is there. */
static int verify_symbol(const struct xk_place *place, u32 probed, bool located,
			 struct xk_error *error)
{
	struct xk_symbol at;
	int ret = 0;
	char *text;

	text = kmalloc(KSYM_SYMBOL_LEN, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	if (!xk_symbol_at(place->function, text, &at))
		ret = xk_refuse(error, -ENOENT, "%s: address %#lx is not in the kernel's text",
				place->symbol, place->function);
	else if (strcmp(at.module, place->module))
		ret = xk_refuse(error, -ENOENT, "%s: address %#lx lies in %s, not in %s",
				place->symbol, place->function,
				at.module[0] ? at.module : "vmlinux",
				place->module[0] ? place->module : "vmlinux");
	else if (at.offset ||
		 (!located && strcmp(at.name, place->symbol) && !is_alias(place, probed)))
		ret = xk_refuse(error, -ENOENT, "%s: address %#lx is %s+%#lx",
				place->symbol, place->function, at.name, at.offset);
	else if (place->text->len > at.size)
		ret = xk_refuse(error, -EINVAL, "%s: %u bytes given, the running function has %lu",
				place->symbol, place->text->len, at.size);
	kfree(text);
	return ret;
}

/* How many bytes of a probe are not the original ones, from what the first is. */
static unsigned int patched(u8 first)
{
	if (first == INT3)
		return 1;
	return first == JMP32 ? XK_PATCH_LEN : 0;
}

/* What of `from`, which stood at `address`, is in view. */
static void put_back(u8 *view, unsigned long start, u32 len, unsigned long address,
		     const u8 *from, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		if (address + i - start < len)
			view[address + i - start] = from[i];
}

static void undo(const struct xk_live_site *site, u8 *view, unsigned long start, u32 len)
{
	const struct xk_stub *stub = site->stub;

	if (site->patch)
		xk_patch_undo(site->patch, view, start, len);
	else if (stub)
		put_back(view, start, len, stub->window.address, stub->window.bytes,
			 stub->window.len);
	else if (site->address - start < len)
		put_back(view, start, len, site->address, site->original,
			 patched(view[site->address - start]));
}

/* Replaces what our own probes wrote into `view` by what they overwrote. */
static void undo_own_probes(u8 *view, unsigned long start, u32 len)
{
	struct xk_tune *tune;
	unsigned int i;

	list_for_each_entry(tune, &xk_tunes, list) {
		for (i = 0; i < tune->nr_sites; i++) {
			const struct xk_live_site *site = &tune->sites[i];

			if (site->phase == XK_PHASE_ARMED && !site->in_data)
				undo(site, view, start, len);
		}
	}
}

/* What stands there is a jump of a tune that has gone; see detour_retire.c. */
static bool is_left_behind(unsigned long address)
{
	struct xk_stub *stub;
	struct xk_poke jump;

	for (stub = xk_stub_next(NULL); stub; stub = xk_stub_next(stub)) {
		if (!stub->dying || !stub->armed ||
		    address - stub->window.address >= stub->window.len)
			continue;
		xk_jump_of(stub, &jump);
		return xk_text_is(jump.address, jump.bytes, jump.len);
	}
	return false;
}

static int compare_text(const struct xk_place *place, u8 *view, u32 len,
			struct xk_error *error)
{
	const struct xk_text *text = place->text;
	const char *hint = "";
	u32 i;

	if (copy_from_kernel_nofault(view, (void *)place->function, len))
		return xk_refuse(error, -EFAULT, "%s: running text cannot be read",
				 place->symbol);
	undo_own_probes(view, place->function, len);

	for (i = 0; i < text->len; i++)
		if ((view[i] ^ text->bytes[i]) & text->mask[i])
			break;
	if (i == text->len)
		return 0;
	if (is_left_behind(place->function + i))
		return xk_refuse(error, -EBUSY,
				 "%s+0x%x: a jump of an earlier tune has not gone yet; try again",
				 place->symbol, i);
	if (view[i] == INT3 || view[i] == JMP32)
		hint = "; another probe or tracer owns it";
	return xk_refuse(error, -EBADMSG, "%s+0x%x: expected %02x, running %02x%s",
			 place->symbol, i, text->bytes[i], view[i], hint);
}

static int verify_text(const struct xk_place *place, u8 *view, u32 len, struct xk_error *error)
{
	int attempt, ret;

	for (attempt = 1; ; attempt++) {
		ret = compare_text(place, view, len, error);
		if (ret != -EBADMSG || attempt == ATTEMPTS)
			return ret;
		msleep(ATTEMPT_INTERVAL_MS);
	}
}

static int verify_at(const struct xk_place *place, u32 probed, bool located, u8 *view, u32 len,
		     struct xk_error *error)
{
	int ret = verify_symbol(place, probed, located, error);

	return ret ? ret : verify_text(place, view, len, error);
}

static int locate(struct xk_place *place, const struct module *module, u32 probed, u8 *view,
		  u32 len, struct xk_error *error)
{
	unsigned long candidates[MAX_CANDIDATES];
	unsigned long found = 0;
	unsigned int i, nr;
	int ret = -ENOENT;

	nr = xk_module_symbols(module, place->symbol, MOD_TEXT, candidates, MAX_CANDIDATES);
	if (!nr)
		return xk_refuse(error, -ENOENT, "module %s has no function %s",
				 module->name, place->symbol);
	if (nr > MAX_CANDIDATES)
		return xk_refuse(error, -ENOENT, "module %s has more than %u functions %s",
				 module->name, MAX_CANDIDATES, place->symbol);
	for (i = 0; i < nr; i++) {
		place->function = candidates[i];
		ret = verify_at(place, probed, true, view, len, error);
		if (ret)
			continue;
		if (found)
			return xk_refuse(error, -ENOENT,
					 "module %s has two functions %s with these bytes",
					 module->name, place->symbol);
		found = candidates[i];
	}
	if (found) {
		place->function = found;
		return verify_at(place, probed, true, view, len, error);
	}
	if (nr == 1)
		return ret;
	return xk_refuse(error, -EBADMSG,
			 "none of the %u functions %s of module %s has the analysed bytes",
			 nr, place->symbol, module->name);
}

/*
 * `module` is that of the place, loaded; NULL for vmlinux. `probed` is the offset
 * of an instruction that could have a probe. Fills `view` with the running bytes,
 * at least as many as were analysed.
 */
int xk_place_verify(struct xk_place *place, const struct module *module, u32 probed,
		    u8 *view, u32 len, struct xk_error *error)
{
	if (module && !place->function)
		return locate(place, module, probed, view, len, error);
	return verify_at(place, probed, false, view, len, error);
}
