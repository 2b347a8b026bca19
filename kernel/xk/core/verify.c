// SPDX-License-Identifier: GPL-2.0-only
/*
 * Verifies that a function is the analysed one. Its address must belong to the symbol and the
 * module. Each byte that the kernel does not patch itself must be the analysed byte. The probes of
 * xk.ko itself in the function are known and ignored. Any other difference is refused, with its
 * offset.
 *
 * If user space does not know the address, because the module was not loaded, it is the only
 * function of that name in the module whose bytes are right.
 */
#include <linux/delay.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core/verify.h"
#include "model/backend.h"
#include "text/claim.h"
#include "text/stub.h"
#include "text/symbol.h"

/* Functions of the same name in one module. */
#define MAX_CANDIDATES 16

#define INT3 0xcc
#define JMP32 0xe9

/* A change of text under way looks like a mismatch for some microseconds. */
#define ATTEMPTS 3
#define ATTEMPT_INTERVAL_MS 20

/*
 * A symbol may share its address with another symbol, whose name the look-up returned. kprobes
 * resolve names. A disabled probe changes nothing in the kernel.
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

/* `located`: the symbol table of the module contains the symbol at this address. */
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
	else if (place->analysed->len > at.size)
		ret = xk_refuse(error, -EINVAL,
				"%s: the table has %u bytes of code, the running function %lu",
				place->symbol, place->analysed->len, at.size);
	kfree(text);
	return ret;
}

void xk_undo_own(u8 *view, unsigned long start, u32 len)
{
	struct xk_tune *tune;
	unsigned int i;

	list_for_each_entry(tune, &xk_tunes, list) {
		for (i = 0; i < tune->nr_sites; i++) {
			const struct xk_live_site *site = &tune->sites[i];

			if (site->phase == XK_PHASE_ARMED && site->backend->undo)
				site->backend->undo(site, view, start, len);
		}
	}
	xk_claims_undo(view, start, len);
}

static int compare_text(const struct xk_place *place, u8 *view, u32 len,
			struct xk_error *error)
{
	const struct xk_analysed *analysed = place->analysed;
	const char *hint = "";
	u32 i;

	if (copy_from_kernel_nofault(view, (void *)place->function, len))
		return xk_refuse(error, -EFAULT, "%s: running text cannot be read",
				 place->symbol);
	xk_undo_own(view, place->function, len);

	for (i = 0; i < analysed->len; i++)
		if ((view[i] ^ analysed->bytes[i]) & analysed->mask[i])
			break;
	if (i == analysed->len)
		return 0;
	if (xk_jump_is_retired(place->function + i))
		return xk_refuse(error, -EBUSY,
				 "%s+0x%x: a jump of an earlier tune is still there; try again",
				 place->symbol, i);
	if (view[i] == INT3 || view[i] == JMP32)
		hint = "; another probe or tracer owns it";
	return xk_refuse(error, -EBADMSG, "%s+0x%x: expected %02x, running %02x%s",
			 place->symbol, i, analysed->bytes[i], view[i], hint);
}

static int verify_text(const struct xk_place *place, u8 *view, u32 len, struct xk_error *error)
{
	int attempt, ret;

	for (attempt = 1; ; attempt++) {
		ret = compare_text(place, view, len, error);
		if ((ret != -EBADMSG && ret != -EBUSY) || attempt == ATTEMPTS)
			return ret;
		if (ret == -EBUSY)
			xk_backends_reclaim();
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

int xk_place_verify(struct xk_place *place, const struct module *module, u32 probed,
		    u8 *view, u32 len, struct xk_error *error)
{
	if (module && !place->function)
		return locate(place, module, probed, view, len, error);
	return verify_at(place, probed, false, view, len, error);
}
