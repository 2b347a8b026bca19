// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions that a change of text executes: xk.ko writes with them, or CPUs wait in them. A probe
 * there would run a program under page tables that map nothing but the text to be written, or in
 * the middle of a stop. The same list, by file, is in crates/xk-span/src/window/changes_code.txt; a
 * test compares them.
 */
#include <linux/array_size.h>
#include <linux/bsearch.h>
#include <linux/kallsyms.h>
#include <linux/string.h>

#include "text/changes_code.h"
#include "text/symbol.h"

/* Ascending. */
static const char *const names[] = {
	"__bpf_arch_text_poke",
	"__cpu_stop_queue_work",
	"__smp_text_poke_batch_add",
	"__static_call_return0",
	"__stop_cpus",
	"__text_poke",
	"ack_state",
	"bpf_arch_text_copy",
	"bpf_arch_text_invalidate",
	"bpf_arch_text_poke",
	"cpu_stop_create",
	"cpu_stop_init_done",
	"cpu_stop_park",
	"cpu_stop_queue_two_works",
	"cpu_stop_queue_work",
	"cpu_stop_should_run",
	"cpu_stop_signal_done",
	"cpu_stopper_thread",
	"do_sync_core",
	"multi_cpu_stop",
	"on_each_cpu_cond_mask",
	"print_stop_info",
	"queue_stop_cpus_work",
	"set_memory_ro",
	"set_memory_rox",
	"set_memory_rw",
	"set_memory_x",
	"set_state",
	"smp_call_function_many_cond",
	"smp_text_poke_batch_add",
	"smp_text_poke_batch_finish",
	"smp_text_poke_single",
	"smp_text_poke_sync_each_cpu",
	"stop_core_cpuslocked",
	"stop_cpus",
	"stop_machine",
	"stop_machine_cpuslocked",
	"stop_machine_from_inactive_cpu",
	"stop_machine_park",
	"stop_machine_unpark",
	"stop_machine_yield",
	"stop_one_cpu",
	"stop_one_cpu_nowait",
	"stop_two_cpus",
	"sync_core_before_usermode",
	"text_poke",
	"text_poke_addr",
	"text_poke_apply_relocation",
	"text_poke_bp",
	"text_poke_bp_batch",
	"text_poke_copy",
	"text_poke_copy_locked",
	"text_poke_early",
	"text_poke_finish",
	"text_poke_flush",
	"text_poke_kgdb",
	"text_poke_loc_init",
	"text_poke_memcpy",
	"text_poke_memset",
	"text_poke_queue",
	"text_poke_set",
	"text_poke_sync",
	"unuse_temporary_mm",
	"use_temporary_mm",
};

/* Stubs that the kernel writes, or whose bytes mitigations depend on. */
static const char *const thunks[] = {
	"__SCT__", "__fentry__", "__static_call_return0", "__x86_", "clear_bhb_loop",
	"entry_ibpb", "entry_untrain_ret", "its_", "optprobe_template_", "retbleed_", "srso_",
	"write_ibpb", "zen_untrain_ret",
};

struct part {
	const char *name;
	size_t len;
};

static int compare(const void *key, const void *element)
{
	const struct part *part = key;
	const char *name = *(const char *const *)element;
	int order = strncmp(part->name, name, part->len);

	return order ?: -(name[part->len] != '\0');
}

const char *xk_changes_code(const char *function)
{
	/* Without what the compiler appended: ".cold", ".part.0" and the like. */
	struct part part = { function, strcspn(function, ".") };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(thunks); i++)
		if (strstarts(function, thunks[i]))
			return "its function is a stub that the kernel or mitigations rely on";
	if (bsearch(&part, names, ARRAY_SIZE(names), sizeof(names[0]), compare))
		return "its function writes text, or CPUs wait in it meanwhile";
	return NULL;
}

const char *xk_changes_code_at(unsigned long address)
{
	char text[KSYM_SYMBOL_LEN];
	struct xk_symbol symbol;

	return xk_symbol_at(address, text, &symbol) ? xk_changes_code(symbol.name) : NULL;
}
