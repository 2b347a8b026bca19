/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of the kernel that ops.c and native.c use, for user space. */
#ifndef _XK_USER_SHIM_H
#define _XK_USER_SHIM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <linux/types.h>

/* As in the kernel, where all 64-bit types are long long. */
typedef __s8 s8;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#define notrace
#define ARRAY_SIZE(array) (sizeof(array) / sizeof(*(array)))
#define hweight16(x) ((unsigned int)__builtin_popcount((u16)(x)))
#define fallthrough __attribute__((__fallthrough__))
#define max(a, b) ({ \
	__typeof__(a) left = (a); \
	__typeof__(b) right = (b); \
	left > right ? left : right; \
})

/* The registers, in the order in which the kernel saves them. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

#endif /* _XK_USER_SHIM_H */
