// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether a site is what the analysis saw: the address belongs to the symbol
 * and module, and every byte of the function that the kernel does not patch
 * itself is the byte that was analysed. Our own probes in the function are
 * known and looked through; any other difference is refused by offset.
 *
 * Where user space does not know the address, since the module was not loaded,
 * it is the one function of that name in the module whose bytes are right.
 */
#include <linux/delay.h>
#include <linux/kallsyms.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "backend.h"
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
static bool is_alias(const struct xk_live_site *site)
{
	char name[XK_MODULE_LEN + XK_SYMBOL_LEN + 1];
	struct kprobe kprobe = {
		.symbol_name = name,
		.offset = site->offset,
		.flags = KPROBE_FLAG_DISABLED,
	};
	bool same;

	snprintf(name, sizeof(name), "%s%s%s", site->module,
		 site->module[0] ? ":" : "", site->symbol);
	if (register_kprobe(&kprobe))
		return false;
	same = (unsigned long)kprobe.addr == site->address;
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
static int verify_symbol(const struct xk_live_site *site, bool located,
			 struct xk_error *error)
{
	struct xk_symbol at;
	int ret = 0;
	char *text;

	text = kmalloc(KSYM_SYMBOL_LEN, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	if (!xk_symbol_at(site->function, text, &at))
		ret = xk_refuse(error, -ENOENT, "%s: address %#lx is not in the kernel's text",
				site->symbol, site->function);
	else if (strcmp(at.module, site->module))
		ret = xk_refuse(error, -ENOENT, "%s: address %#lx lies in %s, not in %s",
				site->symbol, site->function,
				at.module[0] ? at.module : "vmlinux",
				site->module[0] ? site->module : "vmlinux");
	else if (at.offset || (!located && strcmp(at.name, site->symbol) && !is_alias(site)))
		ret = xk_refuse(error, -ENOENT, "%s: address %#lx is %s+%#lx",
				site->symbol, site->function, at.name, at.offset);
	else if (site->text->len > at.size)
		ret = xk_refuse(error, -EINVAL, "%s: %u bytes given, the running function has %lu",
				site->symbol, site->text->len, at.size);
	kfree(text);
	return ret;
}

/* Replaces what our own probes wrote into `view` by what they overwrote. */
static void undo_own_probes(u8 *view, unsigned long start, u32 len)
{
	struct xk_tune *tune;
	unsigned int i, k, patched;

	list_for_each_entry(tune, &xk_tunes, list) {
		for (i = 0; i < tune->nr_sites; i++) {
			const struct xk_live_site *site = &tune->sites[i];

			if (site->phase != XK_PHASE_ARMED || site->address < start ||
			    site->address >= start + len)
				continue;
			if (view[site->address - start] == INT3)
				patched = 1;
			else if (view[site->address - start] == JMP32)
				patched = XK_PATCH_LEN;
			else
				continue;
			for (k = 0; k < patched && site->address + k < start + len; k++)
				view[site->address + k - start] = site->original[k];
		}
	}
}

static int compare_text(const struct xk_live_site *site, u8 *view, u32 len,
			struct xk_error *error)
{
	const struct xk_text *text = site->text;
	const char *hint = "";
	u32 i;

	if (copy_from_kernel_nofault(view, (void *)site->function, len))
		return xk_refuse(error, -EFAULT, "%s: running text cannot be read", site->symbol);
	undo_own_probes(view, site->function, len);

	for (i = 0; i < text->len; i++)
		if ((view[i] ^ text->bytes[i]) & text->mask[i])
			break;
	if (i == text->len)
		return 0;
	if (view[i] == INT3 || view[i] == JMP32)
		hint = "; another probe or tracer owns it";
	return xk_refuse(error, -EBADMSG, "%s+0x%x: expected %02x, running %02x%s",
			 site->symbol, i, text->bytes[i], view[i], hint);
}

static int verify_text(struct xk_live_site *site, struct xk_error *error)
{
	u32 len = max(site->text->len, site->offset + XK_PATCH_LEN);
	int attempt, ret;
	u8 *view;

	view = kvmalloc(len, GFP_KERNEL);
	if (!view)
		return -ENOMEM;
	for (attempt = 1; ; attempt++) {
		ret = compare_text(site, view, len, error);
		if (ret != -EBADMSG || attempt == ATTEMPTS)
			break;
		msleep(ATTEMPT_INTERVAL_MS);
	}
	if (!ret)
		ret = xk_site_link(site, view, error);
	kvfree(view);
	return ret;
}

/*
 * An update is proved for code that nobody else changes from the first of its
 * instructions to the probe. Within one tune the analysis has seen to that;
 * probes of different tunes must not lie in each other's.
 */
static bool disturbs(const struct xk_live_site *site, const struct xk_live_site *other)
{
	unsigned long start = site->address, other_start = other->address;

	if (site->tune != other->tune) {
		start -= site->reach;
		other_start -= other->reach;
	}
	return start < other->address + other->insn_len &&
	       other_start < site->address + site->insn_len;
}

static int verify_unowned(const struct xk_live_site *site, struct xk_error *error)
{
	struct xk_tune *tune;
	unsigned int i;

	list_for_each_entry(tune, &xk_tunes, list) {
		for (i = 0; i < tune->nr_sites; i++) {
			const struct xk_live_site *other = &tune->sites[i];

			if (other == site || (other->phase != XK_PHASE_ARMED &&
					      other->phase != XK_PHASE_READY) ||
			    !disturbs(site, other))
				continue;
			if (tune == site->tune && !xk_whens_collide(other->when, site->when))
				continue;
			return xk_refuse(error, -EBUSY,
					 "%s+0x%x: these instructions are held by %s (tune %u)",
					 site->symbol, site->offset, tune->name, tune->id);
		}
	}
	return 0;
}

static int verify_at(struct xk_live_site *site, unsigned long function, bool located,
		     struct xk_error *error)
{
	int ret;

	site->function = function;
	site->address = function + site->offset;
	ret = verify_unowned(site, error);
	if (ret)
		return ret;
	ret = verify_symbol(site, located, error);
	if (ret)
		return ret;
	return verify_text(site, error);
}

static int locate(struct xk_live_site *site, const struct module *module,
		  struct xk_error *error)
{
	unsigned long candidates[MAX_CANDIDATES];
	unsigned long found = 0;
	unsigned int i, nr;
	int ret = -ENOENT;

	nr = xk_module_symbols(module, site->symbol, MOD_TEXT, candidates, MAX_CANDIDATES);
	if (!nr)
		return xk_refuse(error, -ENOENT, "module %s has no function %s",
				 module->name, site->symbol);
	if (nr > MAX_CANDIDATES)
		return xk_refuse(error, -ENOENT, "module %s has more than %u functions %s",
				 module->name, MAX_CANDIDATES, site->symbol);
	for (i = 0; i < nr; i++) {
		ret = verify_at(site, candidates[i], true, error);
		if (ret)
			continue;
		if (found)
			return xk_refuse(error, -ENOENT,
					 "module %s has two functions %s with these bytes",
					 module->name, site->symbol);
		found = candidates[i];
	}
	if (found)
		return verify_at(site, found, true, error);
	if (nr == 1)
		return ret;
	return xk_refuse(error, -EBADMSG,
			 "none of the %u functions %s of module %s has the analysed bytes",
			 nr, site->symbol, module->name);
}

/* `module` is the one of the site, loaded; NULL for vmlinux. */
int xk_verify_site(struct xk_live_site *site, const struct module *module,
		   struct xk_error *error)
{
	if (site->in_data)
		return xk_data_verify(site, module, error);
	if (module && !site->function)
		return locate(site, module, error);
	return verify_at(site, site->function, false, error);
}
