/* SPDX-License-Identifier: GPL-2.0-only */
/* Symbols of the running kernel, by address and by name: symbol.c, module.c. */
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
 * Finds the symbol that contains the address. The names are stored in `text`, KSYM_SYMBOL_LEN
 * bytes. Returns false if there is none.
 */
bool xk_symbol_at(unsigned long address, char *text, struct xk_symbol *symbol);

/*
 * Returns a loaded module with a reference, or NULL if its code is not loaded or is about to be
 * removed. The code stays as long as xk_lock is held, because the notifier of the removal needs
 * that lock. xk_module_put() drops the reference; NULL is allowed.
 */
const struct module *xk_module_get(const char *name);
void xk_module_put(const struct module *module);

/*
 * Stores the addresses of the symbols with this name in one part of the module, each once. Returns
 * their number, but stores only the first nr_addresses. The module's code must stay loaded.
 */
unsigned int xk_module_symbols(const struct module *module, const char *name,
			       enum mod_mem_type type, unsigned long *addresses,
			       unsigned int nr_addresses);

#endif /* _XK_SYMBOL_H */
