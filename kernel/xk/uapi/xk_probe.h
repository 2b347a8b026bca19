/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The interface of probes between xk.ko and user space, on the device /dev/xk; see docs/probes.md.
 * XK_IOC_VERSION of xk.h tells which interface a loaded xk.ko has.
 */
#ifndef _UAPI_XK_PROBE_H
#define _UAPI_XK_PROBE_H

#include <linux/const.h>
#include <linux/ioctl.h>
#include <linux/types.h>

#include "xk.h"

#define XK_MAX_PROBE_PLACES 65536	/* per attachment */
#define XK_MAX_PROBE_FUNCTIONS 4096	/* per attachment */
#define XK_MAX_PROBE_PROGRAMS 64	/* per attachment */

#define XK_PROBE_JUMPS_ONLY _BITUL(0)	/* refuse where a jump is not possible */

/* An instruction that is to be probed. */
struct xk_probe_place {
	__u64 address;		/* in the running kernel */
	__u64 cookie;		/* for bpf_get_attach_cookie() */
	__u8 window;		/* bytes that a jump may replace, as of struct xk_site; or 0 */
	__u8 window_lead;	/* bytes of the window before the instruction */
	/*
	 * A window of fewer than 5 bytes: the distance from its start to that of another window,
	 * and the length of that one. Its last five bytes become a jump for the short window.
	 */
	__s16 host;
	__u8 host_window;	/* 10 to 15 bytes; or 0 */
	__u8 program;		/* which of the programs of the attachment runs here */
	__u8 pad[2];
};

/*
 * A function of a module. The places in it wait while the module is not loaded. When it is loaded
 * again, before it is initialised, xk.ko looks for a function with this name and these bytes, and
 * probes the same instructions. No jump reaches them then: no analysis knows the new image. The
 * bytes are those of struct xk_site.
 */
struct xk_probe_function {
	__u64 address;		/* in the running kernel */
	char symbol[XK_SYMBOL_LEN];
	char module[XK_MODULE_LEN];
	__u32 text_len;
	__u32 pad;
	__u64 text;		/* const __u8 * */
	__u64 mask;		/* const __u8 * */
};

/*
 * Runs an eBPF program of type kprobe before each of these instructions, until XK_IOC_PROBE_DETACH,
 * until its lease ends, or until the descriptor is closed. Without programs, executions are only
 * counted. The places are ascending by address, without repetition. All of them are probed, or
 * none. A place is reached by a jump where that is safe, else by the function tracer or a kprobe.
 *
 * The functions are ascending by address. A place in a module that is in none of them, or in one
 * whose running bytes differ, holds the module: it cannot be removed.
 */
struct xk_probe_attach {
	__u32 size;		/* in: size of this structure */
	__u32 nr_programs;
	__u32 flags;		/* XK_PROBE_* */
	__u32 nr_places;
	__u64 programs;		/* const __s32 *: descriptors */
	__u64 places;		/* const struct xk_probe_place * */
	__u64 functions;	/* const struct xk_probe_function * */
	__u32 nr_functions;
	__u32 pad;
	char name[XK_NAME_LEN];	/* for lists */
	__u32 id;		/* out, like all that follows */
	__u32 nr_jumps;		/* places that a jump reaches */
	__u32 stops;		/* stops of the machine that were needed */
	__u32 refused;		/* index of the refused place, or nr_places */
	char error[XK_ERROR_LEN];	/* what was refused, where and why */
};

/* After this call the programs run no more. */
struct xk_probe_detach {
	__u32 id;
	__u32 stops;		/* out, like what follows */
	char error[XK_ERROR_LEN];
};

#define XK_PROBE_KEEP _BITUL(0)		/* outlive the descriptor, in xk_probe_lease */

/*
 * Ends the attachment after this time, including time in suspend. With XK_PROBE_KEEP, the
 * attachment outlives the descriptor. Then any descriptor may detach it, or change its lease.
 */
struct xk_probe_lease {
	__u32 id;
	__u32 flags;		/* XK_PROBE_KEEP */
	__u64 ns;		/* 0: no lease */
	char error[XK_ERROR_LEN];	/* out */
};

#define XK_PROBE_KEPT _BITUL(0)		/* outlives the descriptor that attached it */

struct xk_probe_info {
	__u32 index;		/* in: 0, 1, ..; -ENOENT after the last attachment */
	__u32 id;		/* out, like all that follows */
	char name[XK_NAME_LEN];
	__u32 program;		/* number of its first BPF program; 0: counts only */
	__u32 nr_places;
	__u32 nr_jumps;
	__s32 owner_pid;
	__u64 hits;		/* executions of all places */
	__u64 skipped;		/* of these: another BPF program was running on this CPU */
	__u64 age_ns;
	__u64 memory;		/* bytes of stubs */
	__u64 lease_ns;		/* time left; 0: no lease */
	__u32 flags;		/* XK_PROBE_KEPT */
	__u32 nr_programs;
};

/* What reaches a place; neither: a kprobe. */
#define XK_PROBE_JUMP _BITUL(0)
#define XK_PROBE_TRACER _BITUL(1)	/* the function tracer */
#define XK_PROBE_WAITING _BITUL(2)	/* nothing: its module is not loaded, or has other code */

struct xk_probe_place_info {
	__u64 requested;	/* address in the request */
	__u64 address;		/* present one; 0 if it waits */
	__u64 hits;
	__u64 missed;		/* kprobes did not call the handler; not in hits */
	__u32 flags;		/* XK_PROBE_JUMP, XK_PROBE_TRACER, XK_PROBE_WAITING */
	__u32 pad;
	char note[XK_NAME_LEN];	/* why it is no jump, or why it waits */
};

/* The places of an attachment, from `first` on. */
struct xk_probe_places {
	__u32 id;		/* in: attachment */
	__u32 first;		/* in: index */
	__u32 nr;		/* in: room; out: number stored */
	__u32 pad;
	__u64 places;		/* struct xk_probe_place_info * */
};

/*
 * PROBE_ATTACH and PROBE_LEASE return -EACCES with a reason unless the descriptor is open for
 * writing, the caller has CAP_SYS_ADMIN during the call, and the kernel is not locked down.
 * PROBE_DETACH needs only the first two. The other ioctls only read.
 */
#define XK_IOC_PROBE_ATTACH _IOWR(XK_IOC_MAGIC, 16, struct xk_probe_attach)
#define XK_IOC_PROBE_DETACH _IOWR(XK_IOC_MAGIC, 17, struct xk_probe_detach)
#define XK_IOC_PROBE_INFO _IOWR(XK_IOC_MAGIC, 18, struct xk_probe_info)
#define XK_IOC_PROBE_PLACES _IOWR(XK_IOC_MAGIC, 19, struct xk_probe_places)
#define XK_IOC_PROBE_LEASE _IOWR(XK_IOC_MAGIC, 20, struct xk_probe_lease)

#endif /* _UAPI_XK_PROBE_H */
