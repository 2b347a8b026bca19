// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether handlers of xk.ko run with access to user memory. When an update faults, the tracepoint
 * xk_fault of xk.ko is hit, and this module checks the flags of the processor.
 */
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <asm/processor-flags.h>
#include <asm/irqflags.h>

#include "target.h"

static unsigned int faults, unprotected;
static struct tracepoint *hooked;

static void notrace on_fault(void *unused, const void *site)
{
	faults++;
	unprotected += !!(native_save_fl() & X86_EFLAGS_AC);
}

static void unhook(void)
{
	if (hooked)
		tracepoint_probe_unregister(hooked, on_fault, NULL);
	hooked = NULL;
	tracepoint_synchronize_unregister();
}

static void hook(struct module *module)
{
	unsigned int i;

	for (i = 0; i < module->num_tracepoints; i++) {
		struct tracepoint *tracepoint =
			tracepoint_ptr_deref(&module->tracepoints_ptrs[i]);

		if (!strcmp(tracepoint->name, "xk_fault") &&
		    !tracepoint_probe_register(tracepoint, on_fault, NULL))
			hooked = tracepoint;
	}
}

static int changed(struct notifier_block *block, unsigned long event, void *data)
{
	struct module *module = ((struct tp_module *)data)->mod;

	if (strcmp(module->name, "xk"))
		return NOTIFY_DONE;
	if (event == MODULE_STATE_COMING)
		hook(module);
	else if (event == MODULE_STATE_GOING)
		unhook();
	return NOTIFY_DONE;
}

static struct notifier_block notifier = {
	.notifier_call = changed,
};

void xk_target_flags_show(struct seq_file *file)
{
	seq_printf(file, "flags %u %u\n", faults, unprotected);
}

int xk_target_flags_init(void)
{
	return register_tracepoint_module_notifier(&notifier);
}

void xk_target_flags_exit(void)
{
	unregister_tracepoint_module_notifier(&notifier);
	unhook();
}
