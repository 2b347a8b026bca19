/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions for native code: loads and stores of kernel memory that may fault, like those of
 * memory.h. Unwinders do not know the caller.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>
#include <asm/percpu.h>
#include <asm/unwind_hints.h>

	.text

/* Range check as xk_memory_allowed(). Carry is clear after it. */
.macro ACCESS name:req, instruction:vararg
SYM_CODE_START(\name)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	subq	xk_kernel_base(%rip), %rax
	cmpq	xk_kernel_size(%rip), %rax
	jae	xk_native_refused
	addq	xk_kernel_base(%rip), %rax
.Laccess_\name:
	\instruction
	RET
	_ASM_EXTABLE(.Laccess_\name, xk_native_refused)
SYM_CODE_END(\name)
_ASM_NOKPROBE(\name)
.endm

ACCESS xk_native_load1, movzbl (%rax), %eax
ACCESS xk_native_load2, movzwl (%rax), %eax
ACCESS xk_native_load4, movl (%rax), %eax
ACCESS xk_native_load8, movq (%rax), %rax
ACCESS xk_native_store1, movb %cl, (%rax)
ACCESS xk_native_store2, movw %cx, (%rax)
ACCESS xk_native_store4, movl %ecx, (%rax)
ACCESS xk_native_store8, movq %rcx, (%rax)

SYM_CODE_START_LOCAL(xk_native_refused)
	UNWIND_HINT_UNDEFINED
	stc
	RET
SYM_CODE_END(xk_native_refused)
_ASM_NOKPROBE(xk_native_refused)

SYM_CODE_START(xk_native_per_cpu)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	movq	PER_CPU_VAR(this_cpu_off), %rax
	RET
SYM_CODE_END(xk_native_per_cpu)
_ASM_NOKPROBE(xk_native_per_cpu)

/* The end of a function. */
SYM_CODE_START(xk_native_return)
	UNWIND_HINT_UNDEFINED
	ANNOTATE_NOENDBR
	RET
SYM_CODE_END(xk_native_return)
_ASM_NOKPROBE(xk_native_return)
