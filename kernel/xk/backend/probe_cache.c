// SPDX-License-Identifier: GPL-2.0-only
/*
 * A cache of what kprobes report about addresses: whether an instruction begins there that may have
 * a probe, or a probe that becomes a jump. For each registered probe, the kernel decodes all of its
 * jump labels and the function from its start. The result does not change as long as the text
 * exists. Kprobes determine it under text_mutex, so that half-written text is never decoded
 * (prepare_kprobe() in kernel/kprobes.c).
 */
#include <linux/module.h>
#include <linux/xarray.h>

#include "backend/probe_cache.h"

/* By address. Protected by xk_lock. */
static DEFINE_XARRAY(answers);

enum xk_probe_answer xk_probe_cache_get(unsigned long address)
{
	const void *answer = xa_load(&answers, address);

	return answer ? xa_to_value(answer) : XK_PROBE_UNKNOWN;
}

void xk_probe_cache_put(unsigned long address, enum xk_probe_answer answer)
{
	/* Without memory the result is not cached, and the next call queries kprobes again. */
	xa_store(&answers, address, xa_mk_value(answer), GFP_KERNEL | __GFP_NOWARN);
}

void xk_probe_cache_module_going(const struct module *module)
{
	unsigned long address;
	void *answer;

	xa_for_each(&answers, address, answer)
		if (within_module(address, module))
			xa_erase(&answers, address);
}

void xk_probe_cache_exit(void)
{
	xa_destroy(&answers);
}
