// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sites in data: a constant that only initialises a static object is changed
 * by writing to the object. Others may write to it, too, so every change is
 * one atomic exchange that expects what xk wrote last, or, at first, the
 * default; anything else is left alone and reported. Refused is what is not a
 * writable object of that name: constant data, and data that was sealed when
 * the kernel or the module had been initialised.
 */
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "memory.h"
#include "xk.h"

#define MAX_CANDIDATES 16

/*
 * -EFAULT when the memory cannot be written; -ESTALE when it does not hold
 * *old, which then is what it holds. Made for user space, but a fault on a
 * kernel address is an error, too.
 */
#define DEFINE_EXCHANGE(type) \
static int exchange_##type(unsigned long address, u64 *old, u64 new) \
{ \
	type expected = *old; \
	bool done = unsafe_try_cmpxchg_user((type __user *)address, &expected, (type)new, \
					    fault); \
	*old = expected; \
	return done ? 0 : -ESTALE; \
fault: \
	return -EFAULT; \
}

DEFINE_EXCHANGE(u8)
DEFINE_EXCHANGE(u16)
DEFINE_EXCHANGE(u32)
DEFINE_EXCHANGE(u64)

static int exchange(unsigned long address, u8 width, u64 *old, u64 new)
{
	switch (width) {
	case 1:
		return exchange_u8(address, old, new);
	case 2:
		return exchange_u16(address, old, new);
	case 4:
		return exchange_u32(address, old, new);
	default:
		return exchange_u64(address, old, new);
	}
}

static u64 content_for(const struct xk_live_site *site, s64 value)
{
	return xk_iv_apply(&site->ivs[0], value) & xk_width_mask(site->insn_len);
}

static int verify_vmlinux(const struct xk_live_site *site, struct xk_error *error)
{
	struct xk_symbol symbol;
	char *text;
	int ret = 0;

	text = kmalloc(KSYM_SYMBOL_LEN, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	if (!xk_symbol_at(site->place.function, text, &symbol) || symbol.module[0])
		ret = xk_refuse(error, -ENOENT, "%s: address %#lx is not in vmlinux",
				site->place.symbol, site->place.function);
	else if (symbol.offset || strcmp(symbol.name, site->place.symbol))
		ret = xk_refuse(error, -ENOENT, "%s: address %#lx is %s+%#lx", site->place.symbol,
				site->place.function, symbol.name, symbol.offset);
	else if ((u64)site->offset + site->insn_len > symbol.size)
		ret = xk_refuse(error, -EINVAL, "%s+0x%x: beyond the object, which has %lu bytes",
				site->place.symbol, site->offset, symbol.size);
	kfree(text);
	return ret;
}

/* Finds the object, if user space does not know where it is. */
static int verify_module(struct xk_live_site *site, const struct module *module,
			 struct xk_error *error)
{
	unsigned long candidates[MAX_CANDIDATES];
	unsigned int i, nr;

	nr = xk_module_symbols(module, site->place.symbol, MOD_DATA, candidates, MAX_CANDIDATES);
	if (!nr)
		return xk_refuse(error, -ENOENT, "module %s has no writable object %s",
				 module->name, site->place.symbol);
	/* Objects of one name cannot be told apart by what they hold. */
	if (!site->place.function && nr > 1)
		return xk_refuse(error, -ENOENT, "module %s has %u objects %s", module->name,
				 nr, site->place.symbol);
	if (!site->place.function)
		site->place.function = candidates[0];
	for (i = 0; i < min(nr, MAX_CANDIDATES); i++)
		if (candidates[i] == site->place.function)
			break;
	if (i == min(nr, MAX_CANDIDATES) ||
	    !within_module_mem_type(site->place.function + site->offset + site->insn_len - 1,
				    module, MOD_DATA))
		return xk_refuse(error, -ENOENT, "%s+0x%x: address %#lx is no such object of %s",
				 site->place.symbol, site->offset, site->place.function,
				 module->name);
	return 0;
}

static int verify_unowned(const struct xk_live_site *site, struct xk_error *error)
{
	const struct xk_live_site *holder = xk_holder(site, xk_data_overlap);

	if (!holder)
		return 0;
	return xk_refuse(error, -EBUSY, "%s+0x%x: this object is held by %s (tune %u)",
			 site->place.symbol, site->offset, holder->tune->name,
			 holder->tune->id);
}

static int verify_content(struct xk_live_site *site, struct xk_error *error)
{
	u64 expected = content_for(site, site->tune->default_value);
	u64 found = expected;

	/* What is there, written over what is there: that shows that it can be written. */
	switch (exchange(site->address, site->insn_len, &found, expected)) {
	case 0:
		site->written = expected;
		return 0;
	case -ESTALE:
		return xk_refuse(error, -ESTALE,
				 "%s+0x%x: holds %llu, and %llu by default: somebody changed it",
				 site->place.symbol, site->offset, found, expected);
	default:
		return xk_refuse(error, -EROFS, "%s+0x%x: this memory is read-only",
				 site->place.symbol, site->offset);
	}
}

/* As xk_verify_site(). */
int xk_data_verify(struct xk_live_site *site, const struct module *module,
		   struct xk_error *error)
{
	int ret;

	ret = module ? verify_module(site, module, error) : verify_vmlinux(site, error);
	if (ret)
		return ret;
	site->address = site->place.function + site->offset;
	/* Half of a value must never be seen. */
	if (site->address % site->insn_len)
		return xk_refuse(error, -EINVAL, "%s+0x%x: %#lx is not aligned to %u bytes",
				 site->place.symbol, site->offset, site->address, site->insn_len);
	ret = verify_unowned(site, error);
	if (ret)
		return ret;
	return verify_content(site, error);
}

void xk_data_write(struct xk_live_site *site, s64 value)
{
	u64 new = content_for(site, value);
	u64 found = site->written;

	if (new == site->written)
		return;
	if (!exchange(site->address, site->insn_len, &found, new))
		site->written = new;
	else
		pr_warn("xk: %s: %s+0x%x is left alone: it holds %llu, xk wrote %llu\n",
			site->tune->name, site->place.symbol, site->offset, found, site->written);
}

/* Whether it holds what xk wrote; if not, and `reason` is not NULL, what it holds. */
bool xk_data_in_force(const struct xk_live_site *site, char *reason, size_t size)
{
	u64 found;

	if (xk_memory_load(site->address, site->insn_len, &found)) {
		if (reason)
			snprintf(reason, size, "cannot be read");
		return false;
	}
	if (found == site->written)
		return true;
	if (reason)
		snprintf(reason, size, "holds %llu, xk wrote %llu", found, site->written);
	return false;
}
