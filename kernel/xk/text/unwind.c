// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tables of the ORC unwinder (arch/x86/kernel/unwind_orc.c): addresses relative to themselves,
 * ascending, and how the stack is found from each of them on.
 */
#include <linux/lockdep.h>
#include <linux/module.h>
#include <linux/string.h>

#include "base/lock.h"
#include "text/internal.h"
#include "text/unwind.h"

#ifdef CONFIG_UNWINDER_ORC
#include <asm/orc_types.h>

struct tables {
	const int *addresses;
	const struct orc_entry *entries;
	unsigned int nr;
};

static struct tables kernel;

static const struct tables *kernel_tables(void)
{
	unsigned long start = xk_internal_find("__start_orc_unwind_ip");
	unsigned long stop = xk_internal_find("__stop_orc_unwind_ip");

	kernel.addresses = (const int *)start;
	kernel.entries = (const struct orc_entry *)xk_internal_find("__start_orc_unwind");
	if (start && stop && kernel.entries)
		kernel.nr = (stop - start) / sizeof(int);
	return &kernel;
}

/* The last entry that is not above the address. NULL: the unwinder knows nothing. */
static const struct orc_entry *find(const struct tables *tables, unsigned long address)
{
	unsigned int low = 0, high = tables->nr;

	while (low < high) {
		unsigned int middle = (low + high) / 2;
		const int *at = &tables->addresses[middle];

		if ((unsigned long)at + *at <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || tables->entries[low - 1].sp_reg == ORC_REG_UNDEFINED)
		return NULL;
	return &tables->entries[low - 1];
}

bool xk_unwind_agrees(const struct module *module, unsigned long one, unsigned long other)
{
	const struct orc_entry *first, *second;
	struct tables of_module = {};
	const struct tables *tables;

	lockdep_assert_held(&xk_lock);
	if (module) {
		of_module.addresses = module->arch.orc_unwind_ip;
		of_module.entries = module->arch.orc_unwind;
		of_module.nr = module->arch.num_orcs;
	}
	tables = module ? &of_module : kernel.nr ? &kernel : kernel_tables();
	first = find(tables, one);
	second = find(tables, other);
	return first && second && !memcmp(first, second, sizeof(*first));
}
#else
bool xk_unwind_agrees(const struct module *module, unsigned long one, unsigned long other)
{
	return false;
}
#endif
