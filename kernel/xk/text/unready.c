// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions that a CPU executes while it comes online, resumes, or leaves for another kernel. It
 * has no per-CPU memory, no table of interrupts, or other page tables. A jump to a stub would read
 * per-CPU memory that is not there, and a breakpoint would find no handler: the machine resets. The
 * kernel forbids probes in none of them.
 *
 * From head_64.S, smpboot.c, cpu/common.c, idt.c, sev, acpi/wakeup_64.S, power and
 * machine_kexec_64.c in arch/x86 of Linux 6.12. The same list is in
 * crates/xk-span/src/window/exclude.rs.
 */
#include <linux/kallsyms.h>
#include <linux/string.h>

#include "text/symbol.h"
#include "text/unready.h"

static const char *const names[] = {
	"__efi64_thunk",
	"__efi_call",
	"__restore_processor_state",
	"__startup_64",
	"__switch_to_asm",
	"asm_acpi_mp_play_dead",
	"common_startup_64",
	"core_restore_code",
	"cpu_init_exception_handling",
	"cr4_init",
	"cr4_update_irqsoff",
	"do_suspend_lowlevel",
	"early_idt_handler_array",
	"early_idt_handler_common",
	"early_setup_idt",
	"load_current_idt",
	"load_segments",
	"machine_kexec",
	"native_load_idt",
	"native_load_tr_desc",
	"native_read_msr",
	"native_write_cr0",
	"native_write_cr4",
	"native_write_gdt_entry",
	"native_write_msr",
	"pvh_start_xen",
	"relocate_kernel",
	"relocate_range",
	"restore_image",
	"restore_processor_state",
	"restore_registers",
	"secondary_startup_64",
	"secondary_startup_64_no_verify",
	"setup_getcpu",
	"setup_ghcb",
	"sev_verify_cbit",
	"soft_restart_cpu",
	"start_cpu0",
	"start_secondary",
	"startup_64",
	"startup_64_load_idt",
	"startup_64_setup_gdt_idt",
	"swsusp_arch_suspend",
	"tss_setup_io_bitmap",
	"tss_setup_ist",
	"vc_boot_ghcb",
	"vc_no_ghcb",
	"verify_cpu",
	"wakeup_long64",
};

/* Without what the compiler appended: ".cold", ".part.0" and the like. */
bool xk_is_unready(const char *function)
{
	size_t len = strcspn(function, ".");
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strncmp(names[i], function, len) && !names[i][len])
			return true;
	return false;
}

bool xk_is_unready_at(unsigned long address)
{
	char text[KSYM_SYMBOL_LEN];
	struct xk_symbol symbol;

	return xk_symbol_at(address, text, &symbol) && !symbol.module[0] &&
	       xk_is_unready(symbol.name);
}
