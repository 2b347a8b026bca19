/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A cache of what kprobes report about addresses: probe_cache.c. All functions need xk_lock, except
 * xk_probe_cache_exit(), which is called when nothing else uses the cache.
 */
#ifndef _XK_PROBE_CACHE_H
#define _XK_PROBE_CACHE_H

struct module;

enum xk_probe_answer {
	XK_PROBE_UNKNOWN,
	XK_PROBE_YES,	/* a probe may be here, with its own breakpoint */
	XK_PROBE_NO,	/* no probe here may ever become a jump */
};

/* Returns the cached result; XK_PROBE_UNKNOWN if there is none. */
enum xk_probe_answer xk_probe_cache_get(unsigned long address);

/* Stores a result, if there is memory. May sleep. */
void xk_probe_cache_put(unsigned long address, enum xk_probe_answer answer);
/* Forgets the text of a module that is being removed; another module may be loaded there. */
void xk_probe_cache_module_going(const struct module *module);

/* Frees the cache. */
void xk_probe_cache_exit(void);

#endif /* _XK_PROBE_CACHE_H */
