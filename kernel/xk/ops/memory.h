/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory accesses of an update, and where this CPU's data are. Only kernel
 * addresses; an access that faults is an error and never an oops.
 *
 * copy_from_kernel_nofault() does the same with a loop and a check that are
 * dear on a path of a hundred instructions, and its counterpart for stores is
 * not exported.
 */
#ifndef _XK_MEMORY_H
#define _XK_MEMORY_H

#ifdef __KERNEL__

#include <linux/percpu.h>
#include <linux/uaccess.h>
#include <asm/vsyscall.h>

/* The base of gs in the kernel. Only where a task cannot move to another CPU. */
static __always_inline u64 xk_per_cpu_base(void)
{
	return __my_cpu_offset;
}

/* The lowest canonical kernel address of this processor; set at init. */
extern u64 xk_kernel_base;
/* From there to what xk_memory_allowed() excludes. */
extern u64 xk_kernel_size;

void xk_memory_init(void);

/*
 * From the lowest kernel address to the vsyscall page, which is user space in
 * kernel clothes and must not be read. No access that starts below it reaches
 * beyond it unnoticed: the page behind it is not mapped, or may be read.
 */
static __always_inline bool xk_memory_allowed(u64 address)
{
	return address - xk_kernel_base < VSYSCALL_ADDR - 8 - xk_kernel_base;
}

static __always_inline int xk_memory_load(u64 address, u8 width, u64 *value)
{
	const void *p = (const void *)address;
	u32 v4;
	u16 v2;
	u8 v1;

	if (unlikely(!xk_memory_allowed(address)))
		return -EFAULT;
	if (width == 4) {
		__get_kernel_nofault(&v4, p, u32, fault);
		*value = v4;
	} else if (width == 8) {
		__get_kernel_nofault(value, p, u64, fault);
	} else if (width == 1) {
		__get_kernel_nofault(&v1, p, u8, fault);
		*value = v1;
	} else {
		__get_kernel_nofault(&v2, p, u16, fault);
		*value = v2;
	}
	return 0;
fault:
	return -EFAULT;
}

static __always_inline int xk_memory_store(u64 address, u8 width, u64 value)
{
	void *p = (void *)address;
	u32 v4 = value;
	u16 v2 = value;
	u8 v1 = value;

	if (unlikely(!xk_memory_allowed(address)))
		return -EFAULT;
	if (width == 4)
		__put_kernel_nofault(p, &v4, u32, fault);
	else if (width == 8)
		__put_kernel_nofault(p, &value, u64, fault);
	else if (width == 1)
		__put_kernel_nofault(p, &v1, u8, fault);
	else
		__put_kernel_nofault(p, &v2, u16, fault);
	return 0;
fault:
	return -EFAULT;
}

#else /* !__KERNEL__ */

#include "user/shim.h"

u64 xk_per_cpu_base(void);
int xk_memory_load(u64 address, u8 width, u64 *value);
int xk_memory_store(u64 address, u8 width, u64 value);

#endif
#endif /* _XK_MEMORY_H */
