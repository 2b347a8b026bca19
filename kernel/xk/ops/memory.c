// SPDX-License-Identifier: GPL-2.0-only
/* The range of kernel memory on this processor: see memory.h. */
#include <asm/processor.h>

#include "ops/memory.h"

u64 xk_kernel_base __ro_after_init;
u64 xk_kernel_size __ro_after_init;

void __init xk_memory_init(void)
{
	xk_kernel_base = -(1ULL << (boot_cpu_data.x86_virt_bits - 1));
	xk_kernel_size = VSYSCALL_ADDR - 8 - xk_kernel_base;
}
