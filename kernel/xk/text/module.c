// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loaded modules by name, and their symbols. The kernel exports no function for either. A module is
 * found by its name in /sys/module, as by user space; its symbol table is part of the module.
 */
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "text/symbol.h"

const struct module *xk_module_get(const char *name)
{
	struct kobject *kobject = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, name);
	const struct module *module;

	if (!kobject)
		return NULL;
	/* A part of vmlinux with parameters has an entry, too. */
	module = container_of(kobject, struct module_kobject, kobj)->mod;
	if (module && (module->state == MODULE_STATE_LIVE ||
		       module->state == MODULE_STATE_COMING))
		return module;
	kobject_put(kobject);
	return NULL;
}

void xk_module_put(const struct module *module)
{
	if (module)
		kobject_put((struct kobject *)&module->mkobj.kobj);
}

unsigned int xk_module_symbols(const struct module *module, const char *name,
			       enum mod_mem_type type, unsigned long *addresses,
			       unsigned int nr_addresses)
{
	const struct mod_kallsyms *symbols;
	unsigned int i, k, nr = 0;

	rcu_read_lock();
	/* Replaced when the module is initialised; the old symbol table is freed then. */
	symbols = rcu_dereference(module->kallsyms);
	for (i = 0; symbols && i < symbols->num_symtab; i++) {
		unsigned long address = symbols->symtab[i].st_value;

		if (!within_module_mem_type(address, module, type) ||
		    strcmp(symbols->strtab + symbols->symtab[i].st_name, name))
			continue;
		for (k = 0; k < nr && k < nr_addresses; k++)
			if (addresses[k] == address)
				break;
		if (k < nr && k < nr_addresses)
			continue;
		if (nr < nr_addresses)
			addresses[nr] = address;
		nr++;
	}
	rcu_read_unlock();
	return nr;
}
