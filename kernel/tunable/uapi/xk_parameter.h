/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The interface between xk_tunable.ko and user space: the character device /dev/xk_tunable. It
 * reports the parameters and meters that loaded modules describe (docs/module-api.md), and sets the
 * parameters.
 */
#ifndef _UAPI_XK_PARAMETER_H
#define _UAPI_XK_PARAMETER_H

#include <linux/const.h>
#include <linux/ioctl.h>
#include <linux/types.h>

/* Incremented whenever a structure or an ioctl changes. */
#define XK_PARAMETER_ABI_VERSION 1

#define XK_PARAMETER_LEN 64	/* a name, NUL-terminated */
#define XK_PARAMETER_ERROR_LEN 256	/* a reason, NUL-terminated */
#define XK_MAX_CHOICES 16
#define XK_CHOICE_LEN 32

struct xk_parameter_version {
	__u32 abi;
	__u32 pad;
	char module[64];	/* version string of xk_tunable.ko */
};

/* How a search steps through the values from min to max. */
enum xk_parameter_steps {
	XK_PARAMETER_LINEAR = 0,	/* adds step */
	XK_PARAMETER_EXPONENTIAL = 1,	/* multiplies by step */
	XK_PARAMETER_CHOICE = 2,	/* values are indices of `choices` */
};

#define XK_PARAMETER_REVERT _BITUL(0)	/* a confirmed value does not stay after the search */
#define XK_PARAMETER_HELD _BITUL(1)	/* someone set it, and it will return to `original` */
#define XK_PARAMETER_OWN _BITUL(2)	/* ... through this descriptor */

struct xk_parameter_info {
	__u32 index;		/* in: 0, 1, ..; -ENOENT after the last one */
	__u32 id;		/* out, like all that follows; never reused */
	char module[XK_PARAMETER_LEN];
	char subsystem[XK_PARAMETER_LEN];
	char name[XK_PARAMETER_LEN];
	char only_if[XK_PARAMETER_LEN];	/* the parameter that it depends on, or "" */
	__s64 only_if_value;
	__s64 min;
	__s64 max;
	__s64 step;
	__s64 default_value;
	__s64 value;		/* in force, if error is 0 */
	__s64 original;		/* with XK_PARAMETER_HELD */
	__u64 lease_ns;		/* time left; 0: no lease */
	__u32 steps;		/* enum xk_parameter_steps */
	__u32 flags;		/* XK_PARAMETER_* */
	__u32 settle_ms;
	__u32 nr_choices;
	__s32 owner_pid;	/* 0: no owner, or about to be restored */
	__s32 error;		/* of the getter */
	char choices[XK_MAX_CHOICES][XK_CHOICE_LEN];
};

enum xk_parameter_op {
	/* Sets and holds the value. The hold ends if the value is the original one. */
	XK_PARAMETER_SET = 0,
	XK_PARAMETER_LEASE = 1,		/* changes the lease of a held value */
	XK_PARAMETER_KEEP = 2,		/* the held value stays, without an owner */
};

/*
 * A held value returns to the original when the descriptor is closed or the lease ends, unless it
 * is not the value that was set last: then something else has changed it. -ESTALE reports that
 * earlier, or that the lease has ended. -EPERM: another descriptor holds it. -EBUSY: it is being
 * restored. -ENOENT: its module was removed. -EREMOTEIO: the setter of the module failed. -EIO: the
 * getter failed, or returned another value than the one that was set.
 */
struct xk_parameter_change {
	__u32 size;		/* in: size of this structure */
	__u32 id;
	__u32 op;		/* enum xk_parameter_op */
	__u32 pad;
	__s64 value;		/* for XK_PARAMETER_SET */
	__u64 lease_ns;		/* includes time in suspend; 0: no lease */
	char error[XK_PARAMETER_ERROR_LEN];	/* out */
};

enum xk_meter_is {
	XK_METER_IS_SENSOR = 1,
	XK_METER_IS_TARGET = 2,
	XK_METER_IS_BOTTLENECK = 3,
};

#define XK_METER_HAS_RATE _BITUL(0)	/* the growth per second counts */
#define XK_METER_LESS _BITUL(1)		/* less is better */
#define XK_METER_HAS_PER _BITUL(2)	/* divided by the growth of `per`, not by seconds */

struct xk_meter_info {
	__u32 index;		/* in: 0, 1, ..; -ENOENT after the last one */
	__u32 role;		/* out, like all that follows: enum xk_meter_is */
	char module[XK_PARAMETER_LEN];
	char subsystem[XK_PARAMETER_LEN];
	char name[XK_PARAMETER_LEN];
	__u64 limit;		/* in thousandths: tolerance of a sensor, or limit of a test */
	__u64 of;		/* if error is 0 */
	__u64 per;
	__u32 flags;		/* XK_METER_HAS_RATE ... */
	__s32 error;		/* of the getter */
};

/*
 * PARAMETER_CHANGE returns -EACCES with a reason unless the descriptor is open for writing, the
 * caller has CAP_SYS_ADMIN during the call, and the kernel is not locked down: see
 * docs/privilege.md. The other ioctls only read. No number is used by /dev/xk, too.
 */
#define XK_PARAMETER_IOC_MAGIC 0xb7
#define XK_IOC_PARAMETER_VERSION _IOR(XK_PARAMETER_IOC_MAGIC, 64, struct xk_parameter_version)
#define XK_IOC_PARAMETER_INFO _IOWR(XK_PARAMETER_IOC_MAGIC, 65, struct xk_parameter_info)
#define XK_IOC_PARAMETER_CHANGE _IOWR(XK_PARAMETER_IOC_MAGIC, 66, struct xk_parameter_change)
#define XK_IOC_METER_INFO _IOWR(XK_PARAMETER_IOC_MAGIC, 67, struct xk_meter_info)

#endif /* _UAPI_XK_PARAMETER_H */
