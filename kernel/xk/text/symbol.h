/* SPDX-License-Identifier: GPL-2.0-only */
/* Symbols of the running kernel, by address and by name. */
#ifndef _XK_SYMBOL_H
#define _XK_SYMBOL_H

#include <linux/module.h>
#include <linux/types.h>

struct xk_symbol {
	const char *name;
	const char *module;	/* "" for vmlinux */
	unsigned long offset;
	unsigned long size;
};

/*
 * Which symbol the address lies in. The names are in `text`, KSYM_SYMBOL_LEN bytes. False:
 * in none.
 */
bool xk_symbol_at(unsigned long address, char *text, struct xk_symbol *symbol);

/*
 * A module that is loaded. NULL when its code is not there, or is about to go. Otherwise
 * the code stays as long as xk_lock is held: the notifier of its end waits for that.
 */
const struct module *xk_module_get(const char *name);
void xk_module_put(const struct module *module);

/*
 * The addresses of the symbols of this name in a part of the module, each once.
 * Returns how many there are; only the first nr_addresses are written.
 */
unsigned int xk_module_symbols(const struct module *module, const char *name,
			       enum mod_mem_type type, unsigned long *addresses,
			       unsigned int nr_addresses);

#endif /* _XK_SYMBOL_H */
