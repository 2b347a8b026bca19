// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data backend: a constant that only initialises a static object is changed by a write to the
 * object. Others may write to the object, too. So each change is one atomic exchange that expects
 * what xk wrote last, or at first the default. An object with other content is left alone and
 * reported.
 *
 * Constant data of a module stays mapped read-only. xk maps its page a second time for the write,
 * and only for that time. The mapping needs memory, so it is made before a version changes
 * (data_open()), when nothing has changed yet. It is removed right after the write (data_close()).
 * Constant data of vmlinux, and data that was made read-only after the initialisation of the kernel
 * or the module, are refused.
 */
#include <linux/kallsyms.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "backend/data/data.h"
#include "core/conflict.h"
#include "model/tune.h"
#include "ops/memory.h"
#include "text/symbol.h"

#define MAX_CANDIDATES 16

struct object {
	u64 written;		/* what xk wrote last, or found */
	bool constant;		/* mapped read-only */
	void *alias;		/* writable mapping during a write; or NULL */
};

static struct object *object_of(const struct xk_live_site *site)
{
	BUILD_BUG_ON(sizeof(struct object) > sizeof(site->private));
	return (struct object *)&site->private;
}

/*
 * Returns -EFAULT if the memory cannot be written, or -ESTALE if it does not hold *old; *old is
 * then what it holds. The primitive is made for user space, but also handles a fault on a kernel
 * address.
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

static bool is_constant(const struct module *module, unsigned long address)
{
	return within_module_mem_type(address, module, MOD_RODATA);
}

/* Finds the objects of this name in data and constant data. Result as xk_module_symbols(). */
static unsigned int objects(const struct module *module, const char *name,
			    unsigned long addresses[MAX_CANDIDATES])
{
	unsigned int nr;

	nr = xk_module_symbols(module, name, MOD_DATA, addresses, MAX_CANDIDATES);
	if (nr >= MAX_CANDIDATES)
		return nr;
	return nr + xk_module_symbols(module, name, MOD_RODATA, addresses + nr,
				      MAX_CANDIDATES - nr);
}

/* Finds the object if user space does not know its address. */
static int verify_module(struct xk_live_site *site, const struct module *module,
			 struct xk_error *error)
{
	unsigned long candidates[MAX_CANDIDATES], last;
	unsigned int i, nr;

	nr = objects(module, site->place.symbol, candidates);
	if (!nr)
		return xk_refuse(error, -ENOENT, "module %s has no object %s that can be changed",
				 module->name, site->place.symbol);
	/* Objects of the same name cannot be told apart by their content. */
	if (!site->place.function && nr > 1)
		return xk_refuse(error, -ENOENT, "module %s has %u objects %s", module->name,
				 nr, site->place.symbol);
	if (!site->place.function)
		site->place.function = candidates[0];
	for (i = 0; i < min(nr, MAX_CANDIDATES); i++)
		if (candidates[i] == site->place.function)
			break;
	last = site->place.function + site->offset + site->insn_len - 1;
	if (i == min(nr, MAX_CANDIDATES) ||
	    !(within_module_mem_type(last, module, MOD_DATA) || is_constant(module, last)) ||
	    is_constant(module, last) != is_constant(module, site->place.function))
		return xk_refuse(error, -ENOENT, "%s+0x%x: address %#lx is no such object of %s",
				 site->place.symbol, site->offset, site->place.function,
				 module->name);
	return 0;
}

/* A value is aligned to its width, so it lies in one page. */
static int open_alias(struct xk_live_site *site, struct xk_error *error)
{
	struct page *page = vmalloc_to_page((void *)site->address);
	struct object *object = object_of(site);

	object->alias = page ? vmap(&page, 1, VM_MAP, PAGE_KERNEL) : NULL;
	if (!object->alias)
		return xk_refuse(error, -ENOMEM, "%s+0x%x: no memory to map %#lx for writing",
				 site->place.symbol, site->offset, site->address);
	return 0;
}

/* Makes data_write() of this value possible until data_close(). */
static int data_open(struct xk_live_site *site, s64 value, struct xk_error *error)
{
	const struct object *object = object_of(site);

	if (!object->constant || object->alias || content_for(site, value) == object->written)
		return 0;
	return open_alias(site, error);
}

static void data_close(struct xk_live_site *site)
{
	struct object *object = object_of(site);

	vunmap(object->alias);
	object->alias = NULL;
}

/* The address for writes. Reads use the address that everyone uses. */
static unsigned long writable(const struct xk_live_site *site)
{
	const struct object *object = object_of(site);

	if (!object->alias)
		return site->address;
	return (unsigned long)object->alias + offset_in_page(site->address);
}

static int verify_object_unowned(const struct xk_live_site *site, struct xk_error *error)
{
	const struct xk_live_site *holder = xk_find_conflict(site, xk_data_overlap);

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

	/* Replaces the content by itself, which shows that it can be written. */
	switch (exchange(writable(site), site->insn_len, &found, expected)) {
	case 0:
		object_of(site)->written = expected;
		return 0;
	case -ESTALE:
		return xk_refuse(error, -ESTALE,
				 "%s+0x%x: holds %llu instead of the default %llu: something else changed it",
				 site->place.symbol, site->offset, found, expected);
	default:
		return xk_refuse(error, -EROFS, "%s+0x%x: this memory is read-only",
				 site->place.symbol, site->offset);
	}
}

static int data_verify(struct xk_live_site *site, const struct module *module,
		       struct xk_error *error)
{
	struct object *object = object_of(site);
	int ret;

	object->constant = false;
	ret = module ? verify_module(site, module, error) : verify_vmlinux(site, error);
	if (ret)
		return ret;
	site->address = site->place.function + site->offset;
	/* An aligned value is written atomically, so no reader sees half of it. */
	if (site->address % site->insn_len)
		return xk_refuse(error, -EINVAL, "%s+0x%x: %#lx is not aligned to %u bytes",
				 site->place.symbol, site->offset, site->address, site->insn_len);
	ret = verify_object_unowned(site, error);
	object->constant = module && is_constant(module, site->address);
	if (!ret && object->constant)
		ret = open_alias(site, error);
	if (!ret)
		ret = verify_content(site, error);
	data_close(site);
	return ret;
}

/* Constant data was opened by data_open(). */
static void data_write(struct xk_live_site *site, s64 value)
{
	struct object *object = object_of(site);
	u64 new = content_for(site, value);
	u64 found = object->written;

	if (new == object->written)
		return;
	if (!exchange(writable(site), site->insn_len, &found, new))
		object->written = new;
	else
		pr_warn("xk: %s: %s+0x%x is left alone: it holds %llu, xk wrote %llu\n",
			site->tune->name, site->place.symbol, site->offset, found,
			object->written);
}

/* When the tune is loaded, the object already holds the default. */
static int arm_object(struct xk_live_site *site, struct xk_error *error)
{
	s64 value = site->tune->values->value;
	int ret = data_open(site, value, error);

	if (ret)
		return ret;
	site->phase = XK_PHASE_ARMED;
	data_write(site, value);
	data_close(site);
	return 0;
}

static int data_arm(struct xk_live_site **sites, unsigned int nr, struct xk_error *error)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < nr && !ret; i++)
		ret = arm_object(sites[i], error);
	return ret;
}

static __printf(2, 3) void say(struct xk_site_info *info, const char *format, ...)
{
	va_list arguments;

	if (!info)
		return;
	va_start(arguments, format);
	vsnprintf(info->reason, sizeof(info->reason), format, arguments);
	va_end(arguments);
}

/* Whether the object holds what xk wrote; if not, what it holds. */
static u32 data_describe(const struct xk_live_site *site, struct xk_site_info *info)
{
	const struct object *object = object_of(site);
	u64 found;

	if (site->phase != XK_PHASE_ARMED)
		return XK_SITE_IN_DATA;
	if (xk_memory_load(site->address, site->insn_len, &found)) {
		say(info, "cannot be read");
		return XK_SITE_IN_DATA | XK_SITE_DRIFTED;
	}
	if (found == object->written)
		return XK_SITE_IN_DATA | XK_SITE_ARMED;
	say(info, "holds %llu, xk wrote %llu", found, object->written);
	return XK_SITE_IN_DATA | XK_SITE_DRIFTED;
}

const struct xk_backend xk_backend_data = {
	.name = "data",
	.verify = data_verify,
	.arm = data_arm,
	.open = data_open,
	.write = data_write,
	.close = data_close,
	.describe = data_describe,
};
