/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory accesses of an update, and the base of per-CPU data. Only kernel addresses are allowed. An
 * access that faults returns an error and never causes an oops.
 *
 * copy_from_kernel_nofault() does the same with a loop and a check, which is expensive on a path of
 * a hundred instructions. Its counterpart for stores is not exported.
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

/* The lowest canonical kernel address of this processor. Set at initialisation. */
extern u64 xk_kernel_base;
/* Length of the range that xk_memory_allowed() allows. */
extern u64 xk_kernel_size;

/* Sets the two. Called once, by xk_init(). */
void xk_memory_init(void);

/*
 * Whether an update may access this address: from the lowest kernel address to the vsyscall page,
 * which belongs to user space and must not be read. An access is at most 8 bytes long, so none that
 * starts below the limit reaches that page.
 */
static __always_inline bool xk_memory_allowed(u64 address)
{
	return address - xk_kernel_base < VSYSCALL_ADDR - 8 - xk_kernel_base;
}

/* Reads `width` bytes, zero-extended. Returns 0 or -EFAULT. In any context. */
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

/* Writes the low `width` bytes of `value`. Returns 0 or -EFAULT. In any context. */
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
