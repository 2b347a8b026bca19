// SPDX-License-Identifier: GPL-2.0-only
/*
 * What kprobes have answered about an address: whether an instruction begins there that
 * may have a probe. To answer, the kernel decodes every jump label that it has and the
 * function from its start, again for each probe that is registered; and the answer does
 * not change as long as the text is there. It is asked for under the lock of text, so
 * that nothing which is half written is taken for an answer (prepare_kprobe() in
 * kernel/kprobes.c).
 */
#include <linux/module.h>
#include <linux/xarray.h>

#include "backend/probe_cache.h"

/* By address; under xk_lock. */
static DEFINE_XARRAY(answers);

enum xk_probe_answer xk_probe_cache_get(unsigned long address)
{
	const void *answer = xa_load(&answers, address);

	return answer ? xa_to_value(answer) : XK_PROBE_UNKNOWN;
}

void xk_probe_cache_put(unsigned long address, enum xk_probe_answer answer)
{
	/* Without memory it is asked for again. */
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
