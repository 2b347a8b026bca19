// SPDX-License-Identifier: GPL-2.0-only
/* Symbols by address. */
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "text/symbol.h"

/* sprint_symbol() prints "name+0x0/0x123 [module]", which this splits in place. */
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
