/* SPDX-License-Identifier: GPL-2.0-only */
/* What kprobes have answered about addresses. All of this under xk_lock. */
#ifndef _XK_PROBE_CACHE_H
#define _XK_PROBE_CACHE_H

struct module;

enum xk_probe_answer {
	XK_PROBE_UNKNOWN,
	XK_PROBE_YES,	/* a probe may be there, with a breakpoint of its own */
	XK_PROBE_NO,	/* none may be there, ever */
};

enum xk_probe_answer xk_probe_cache_get(unsigned long address);
void xk_probe_cache_put(unsigned long address, enum xk_probe_answer answer);
/* Its text goes; another module may come to the same addresses. */
void xk_probe_cache_module_going(const struct module *module);
void xk_probe_cache_exit(void);

#endif /* _XK_PROBE_CACHE_H */
