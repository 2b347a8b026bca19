/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The interface between xk.ko and user space: the character device /dev/xk, and the operations that
 * an update may perform.
 *
 * A tune is a set of sites that change together. User space (the analysis) describes what a site
 * must do as a short list of typed operations. xk.ko checks each operation when the tune is loaded,
 * compares the code of the site with the running bytes, and executes the operations when the site
 * is reached.
 */
#ifndef _UAPI_XK_H
#define _UAPI_XK_H

#include <linux/const.h>
#include <linux/ioctl.h>
#include <linux/types.h>

/* Incremented whenever a structure, an operation or an ioctl changes. */
#define XK_ABI_VERSION 14

#define XK_NAME_LEN 128		/* ConstID or alias, NUL-terminated */
#define XK_SYMBOL_LEN 128	/* function name, NUL-terminated */
#define XK_MODULE_LEN 64	/* "" means vmlinux */
#define XK_MAX_SITES 256	/* per tune */
#define XK_MAX_SCOPES 512	/* per tune */
#define XK_MAX_RANGES 256	/* per scope */
#define XK_MAX_VALUES 4096	/* per tune, outside of the proved range */
#define XK_MAX_CHANGES 1024	/* per transition */
#define XK_MAX_TIMEOUT_MS 600000
#define XK_MAX_OPS 48		/* per site */
#define XK_MAX_IVS 8		/* per site */
#define XK_MAX_PATCHES 4	/* per site */
#define XK_MAX_IGNORED 8	/* threads per tune */
#define XK_MAX_TEMPS 32		/* t0 .. t31, 64 bits each */
#define XK_MAX_TEXT 65536	/* bytes of a function that can be checked */
#define XK_ERROR_LEN 256	/* a reason, NUL-terminated */
#define XK_MAX_LINKS 64		/* per policy */
#define XK_POLICY_BUCKETS 64

/* The x86 status flags: the only flags that an update may write. */
#define XK_STATUS_FLAGS 0x8d5ULL

/*
 * Operations. `width` is 1, 2, 4 or 8 bytes. A temporary always holds its value zero-extended to 64
 * bits. `dst`, `a`, `b`, `c` are temporaries unless stated otherwise. Registers use the processor's
 * numbers (rax rcx rdx rbx rsp rbp rsi rdi r8 .. r15). A temporary must be written before it is
 * read.
 *
 * Operands, including shift counts, are truncated to the width of the operation first. Exceptions:
 * addresses, the condition of XK_OP_SELECT, and the flags of XK_OP_COND and XK_OP_SET_FLAGS are 64
 * bits wide. Operations take effect in order, but registers and flags change only if no memory
 * access faulted.
 */
enum xk_op_code {
	XK_OP_IV = 1,		/* t[dst] = iv[imm], truncated to width */
	XK_OP_IMM,		/* t[dst] = imm, truncated to width */
	XK_OP_REG,		/* t[dst] = low bytes of register a; b = 1: bits 8..15 */
	XK_OP_FLAGS,		/* t[dst] = rflags & XK_STATUS_FLAGS */
	XK_OP_LOAD,		/* t[dst] = memory[t[a] + imm], width bytes */
	XK_OP_ADD,		/* t[dst] = t[a] + t[b] */
	XK_OP_SUB,		/* t[dst] = t[a] - t[b] */
	XK_OP_MUL,		/* t[dst] = low part of t[a] * t[b] */
	XK_OP_AND,		/* t[dst] = t[a] & t[b] */
	XK_OP_OR,		/* t[dst] = t[a] | t[b] */
	XK_OP_XOR,		/* t[dst] = t[a] ^ t[b] */
	XK_OP_SHL,		/* t[dst] = t[a] << t[b]; 0 when t[b] >= bits */
	XK_OP_SHR,		/* t[dst] = t[a] >> t[b], logical; 0 when t[b] >= bits */
	XK_OP_SAR,		/* t[dst] = t[a] >> t[b], arithmetic; sign when t[b] >= bits */
	XK_OP_NOT,		/* t[dst] = ~t[a] */
	XK_OP_NEG,		/* t[dst] = -t[a] */
	XK_OP_SEXT,		/* t[dst] = t[a] of b bytes, sign-extended to width */
	XK_OP_EQ,		/* t[dst] = t[a] == t[b], 0 or 1, compared at width */
	XK_OP_ULT,		/* t[dst] = t[a] < t[b] unsigned */
	XK_OP_SLT,		/* t[dst] = t[a] < t[b] signed */
	XK_OP_SELECT,		/* t[dst] = t[a] != 0 ? t[b] : t[c] */
	XK_OP_FLAGS_ADD,	/* t[dst] = status flags of t[a] + t[b] */
	XK_OP_FLAGS_SUB,	/* t[dst] = status flags of t[a] - t[b] (cmp, sub) */
	XK_OP_FLAGS_LOGIC,	/* t[dst] = status flags of the logic result t[a]; AF = 0 */
	XK_OP_COND,		/* t[dst] = condition code imm (0..15) holds in flags t[a] */
	XK_OP_SET_REG,		/* register dst = t[a]; 4 clears the upper half, 1 and 2 keep it */
	XK_OP_SET_FLAGS,	/* the flags in imm become those of t[a]; XK_STATUS_FLAGS only */
	XK_OP_STORE,		/* memory[t[a] + imm] = t[b]; the site must declare it */
	XK_OP_TEXT,		/* t[dst] = what the linker wrote at offset imm of the
				 * function: 4 bytes, sign-extended; b = 1: plus the
				 * address c bytes after them (relative to rip). Read
				 * from the running text when the tune is loaded.
				 */
	XK_OP_PER_CPU,		/* t[dst] = distance of this CPU's per-CPU data (base of gs) */
};

struct xk_op {
	__u8 code;
	__u8 width;
	__u8 dst;
	__u8 a;
	__u8 b;
	__u8 c;
	__u8 pad[2];
	__s64 imm;
};

/* The function from V to an encoded value, modulo 2^64; truncated to width when used. */
enum xk_form {
	XK_FORM_LINEAR = 0,	/* a * V + b */
	XK_FORM_QUOTIENT = 1,	/* (a * V + b) / by, rounded down; by > 0 */
	XK_FORM_POWER = 2,	/* ((a << V) >> by, arithmetic) + b; b unless V is 0..62 */
	XK_FORM_LOG2 = 3,	/* a * log2(V) + b; rounded down, 0 if V < 1 */
	XK_FORM_INVERSE = 4,	/* (unsigned) a / V + b, rounded down; b if V < 1 */
};

struct xk_iv {
	__s64 a;
	__s64 b;
	__u8 form;		/* enum xk_form */
	__u8 pad[7];
	__s64 by;		/* 0..63 with XK_FORM_POWER; 0 if unused */
};

/* When the operations of a site run. */
enum xk_when {
	XK_BEFORE = 0,		/* before the instruction at the site */
	XK_AFTER = 1,		/* after it; never jump-optimised */
	XK_INSTEAD = 2,		/* instead of it, unless memory faulted; never jump-optimised */
};

#define XK_SITE_STORES _BITUL(0)	/* the operations contain XK_OP_STORE */
#define XK_SITE_DATA _BITUL(1)		/* a static object, not code */

/*
 * An instruction of the site that holds an encoded value: `size` bytes at offset `field` of the
 * instruction, which the processor sign-extends to `width`.
 */
struct xk_patch {
	__u32 offset;		/* of the instruction in the function */
	__u8 insn_len;
	__u8 field;
	__u8 size;		/* 1, 2, 4 or 8 */
	__u8 width;		/* 1, 2, 4 or 8 */
	__u8 iv;		/* index in `ivs` of the site */
	__u8 pad[3];
};

/*
 * The whole function is checked. `text` contains its analysed bytes. `mask` is 0xff where the
 * running bytes must be equal. It is 0x00 where the kernel patches itself (alternatives, static
 * calls, jump labels, ftrace), and where a relocation was applied. Both have text_len bytes.
 *
 * A site in a module that is not loaded waits. When the module is loaded, before it is initialised,
 * xk.ko looks for a function with this name and these bytes, and arms the site with the value in
 * force.
 *
 * With XK_SITE_DATA, the symbol is a static object that the constant initialises. offset is the
 * place of the value in it, insn_len the width of the value. There is one encoded value, and
 * neither operations nor text. The object must hold the encoded value of the default. xk.ko writes
 * to it only while it holds what xk.ko wrote last.
 */
struct xk_site {
	__u64 address;		/* of the function, see struct xk_table */
	char symbol[XK_SYMBOL_LEN];
	char module[XK_MODULE_LEN];
	__u32 offset;		/* of the probed instruction in the function */
	__u8 insn_len;		/* of that instruction; of a value in data, its width */
	__u8 when;		/* enum xk_when */
	__u8 nr_ops;
	__u8 nr_ivs;
	__u32 flags;		/* XK_SITE_* */
	__u32 text_len;
	__u32 start;		/* offset of the first instruction of the update's proof */
	__u8 window;		/* bytes that a jump may replace, see XK_LOAD_DETOUR; or 0 */
	__u8 window_lead;	/* bytes of the window before the instruction at the site */
	__u8 nr_patches;	/* instructions that hold the value, see XK_LOAD_PATCH; or 0 */
	__u8 pad;
	__u64 text;		/* offset in the table */
	__u64 mask;		/* offset in the table */
	struct xk_iv ivs[XK_MAX_IVS];
	struct xk_op ops[XK_MAX_OPS];
	struct xk_patch patches[XK_MAX_PATCHES];
};

/*
 * A safe span: the part of a function in which values that depend on the constant are alive. A
 * thread is inside if, in a frame of its stack, the interrupted instruction or the pending call
 * lies in one of the ranges. The function is checked, and waits for its module, like that of a
 * site.
 */
struct xk_range {
	__u32 start;		/* offset in the function */
	__u32 end;		/* after the last byte */
};

struct xk_scope {
	__u64 address;		/* of the function, see struct xk_table */
	char symbol[XK_SYMBOL_LEN];
	char module[XK_MODULE_LEN];
	__u32 text_len;
	__u32 nr_ranges;
	__u64 text;		/* offset in the table */
	__u64 mask;		/* offset in the table */
	__u64 ranges;		/* offset in the table: struct xk_range */
};

/*
 * Use jumps to stubs instead of probes where that is safe. `window` of a site is the number of
 * bytes, in whole instructions, that a jump may replace. User space checked on the whole image that
 * no code branches into the middle of them.
 */
#define XK_LOAD_DETOUR _BITUL(0)
#define XK_LOAD_DETOUR_ONLY _BITUL(1)	/* refuse to load where it is not safe */
/*
 * Write the value into the instructions that hold it, as described by `patches` of a site. This
 * happens in the stop in which the value comes into force. Such a tune cannot change in
 * XK_MODE_TASK, and takes no policy.
 */
#define XK_LOAD_PATCH _BITUL(2)
#define XK_LOAD_PATCH_ONLY _BITUL(3)	/* refuse to load where that is impossible */

#define XK_TABLE_MAGIC "xktable"
#define XK_MAX_TABLE (16 << 20)
#define XK_MAX_SIGNATURE 65536

#define XK_TABLE_IN_PLACE _BITUL(0)	/* needs XK_LOAD_PATCH_ONLY */

/*
 * A constant, as one piece of memory that does not depend on the boot and can be signed: see
 * docs/signing.md. This head is followed by __s64 values, strictly ascending, then struct xk_site,
 * struct xk_scope, and the data to which these refer by offset in the table.
 *
 * An address in vmlinux is its distance from _printk, modulo 2^64. An address in a module is the
 * one in the running kernel, or 0, if xk.ko must look it up. In a table whose signature is
 * required, it is 0.
 *
 * A value is accepted if it lies in the proved range or is one of the values. Those were compiled
 * one by one; nothing is known about values between them. The default must be accepted.
 */
struct xk_table {
	char magic[8];		/* XK_TABLE_MAGIC */
	__u32 abi;		/* XK_ABI_VERSION */
	__u32 flags;		/* XK_TABLE_* */
	char name[XK_NAME_LEN];
	__s64 default_value;
	__s64 min;		/* proved range, inclusive; empty if min > max */
	__s64 max;
	__u32 mode;		/* enum xk_mode; a signed tune changes in no weaker one */
	__u32 nr_values;	/* up to XK_MAX_VALUES */
	__u32 nr_sites;
	__u32 nr_scopes;
};

/*
 * Loads a table: arms all sites with the default in force, so nothing changes yet. From then on
 * user space names the tune by `id`. The signature is verified if xk.ko was loaded with
 * require_signed=1.
 */
struct xk_load {
	__u32 size;		/* in: size of this structure */
	__u32 abi;		/* in: XK_ABI_VERSION */
	__u64 table;		/* const struct xk_table * */
	__u64 signature;	/* const void *: PKCS#7, detached, DER */
	__u32 table_len;	/* including all that follows the head */
	__u32 signature_len;	/* 0: none */
	__u32 flags;		/* XK_LOAD_* */
	__u32 id;		/* out, like all that follows */
	char error[XK_ERROR_LEN];	/* what was refused, where and why */
};

/* When threads may switch to another value; see docs/transitions.md. */
enum xk_mode {
	XK_MODE_NOW = 0,	/* at once; of a patch, when no thread is in its instructions */
	XK_MODE_TASK = 1,	/* each thread when it is outside all scopes */
	XK_MODE_GLOBAL = 2,	/* all at the same time, when no thread is inside */
};

#define XK_CHANGE_UNLOAD _BITUL(0)	/* to the default, then unload; value is 0 */
#define XK_CHANGE_POLICY _BITUL(1)	/* the policy decides; value is the value beneath */

struct xk_change {
	__u32 id;
	__u32 flags;		/* XK_CHANGE_* */
	__s64 value;
};

enum xk_outcome {
	XK_OUTCOME_UNCHANGED = 0,	/* the previous values are in force everywhere */
	XK_OUTCOME_DONE = 1,
	XK_OUTCOME_REVERTING = 2,	/* as unchanged, except for the threads in the report */
};

/*
 * Changes several tunes together. After -ETIMEDOUT or -EINTR the transition was given up, see
 * outcome. The report names the threads that were inside, with their stacks. XK_MODE_NOW waits, and
 * can fail in this way, only if instructions must change as well.
 */
struct xk_transition {
	__u32 size;		/* in: size of this structure */
	__u32 mode;		/* enum xk_mode */
	__u32 timeout_ms;	/* 0: a single attempt */
	__u32 nr_changes;
	__u64 changes;		/* const struct xk_change * */
	__u64 report;		/* char *, or 0: text, NUL-terminated, truncated to report_len */
	__u32 report_len;
	__u32 outcome;		/* out, like all that follows: enum xk_outcome */
	__u32 stops;		/* stops of the machine that were needed */
	__u32 pad;
	__u64 elapsed_ns;
	char error[XK_ERROR_LEN];
};

/*
 * Gives a tune a policy: an eBPF program of type kprobe. It runs whenever a site is reached, with
 * the registers there as its context, and chooses the value of this execution by a call of
 * xk_set(). Nothing changes before a transition with XK_CHANGE_POLICY; a policy in force stays
 * until then. In each activation of one of the `scopes`, the policy decides once for all of the
 * `sites`. The `links` stay attached as long as the policy exists.
 */
struct xk_policy {
	__u32 size;		/* in: size of this structure */
	__u32 id;		/* of the tune */
	__s32 program;		/* descriptor; -1 removes the policy */
	__u32 nr_scopes;
	__u64 scopes;		/* const __u32 *: indices of scopes of the tune */
	__u64 sites;		/* const __u32 *: indices of sites of the tune */
	__u64 links;		/* const __s32 *: descriptors of BPF links */
	__u32 nr_sites;
	__u32 nr_links;
	char error[XK_ERROR_LEN];	/* out */
};

/* Unloads the tune after this time, including time in suspend; 0: no lease. */
struct xk_lease {
	__u32 id;
	__u32 pad;
	__u64 ns;
	char error[XK_ERROR_LEN];	/* out */
};

/* Takes the owner from the tune: it outlives the descriptor that loaded it. */
struct xk_detach {
	__u32 id;
	__u32 pad;
	char error[XK_ERROR_LEN];	/* out */
};

/*
 * The tune ignores this thread from now on, also in transitions under way. As long as its stack is
 * unreadable, it does not count as inside, and two values may meet in it. -EINVAL: its stack is
 * readable. -EOPNOTSUPP: the tune changes instructions (XK_LOAD_DETOUR, XK_LOAD_PATCH).
 */
struct xk_ignore {
	__u32 id;
	__s32 thread;		/* number of the thread */
	char error[XK_ERROR_LEN];	/* out */
};

/* The threads for which a tune waits; see the report of struct xk_transition. */
struct xk_report {
	__u32 id;
	__u32 len;
	__u64 text;		/* char * */
};

#define XK_VERSION_SIGNED _BITUL(0)	/* loaded with require_signed=1 */

struct xk_version {
	__u32 abi;
	__u32 flags;		/* XK_VERSION_* */
	char module[64];	/* version string of xk.ko */
	__u64 anchor;		/* address of _printk: see struct xk_table */
};

#define XK_TUNE_DETACHED _BITUL(0)	/* outlives the descriptor that loaded it */
#define XK_TUNE_BROKEN _BITUL(1)	/* a site is broken or disarmed: see the sites */
#define XK_TUNE_POLICY _BITUL(2)	/* a policy decides; `value` is the value beneath */

enum xk_state {
	XK_STATE_STABLE = 0,		/* one value is in force */
	XK_STATE_CHANGING = 1,		/* in transition; `value` is the one in force */
	XK_STATE_REVERTING = 2,		/* given up; `value` is in force again */
	XK_STATE_UNLOADING = 3,		/* returning to the default, to be unloaded */
};

struct xk_tune_info {
	__u32 index;		/* in: 0, 1, ..; -ENOENT after the last tune */
	__u32 id;		/* out, like all that follows */
	char name[XK_NAME_LEN];
	__s64 value;
	__s64 default_value;
	__s64 min;		/* as in struct xk_table */
	__s64 max;
	__u32 nr_sites;
	__u32 flags;		/* XK_TUNE_* */
	__s32 owner_pid;
	__u32 nr_scopes;
	__u32 mode;		/* enum xk_mode of the last transition */
	__u32 state;		/* enum xk_state */
	__u32 blocking;		/* threads for which it waits */
	__u32 nr_values;	/* see XK_IOC_TUNE_VALUES */
	__u64 age_ns;
	__u64 lease_ns;		/* time left; 0: no lease */
	__u32 nr_ignored;
	__s32 ignored[XK_MAX_IGNORED];	/* numbers of threads, see struct xk_ignore */
	__u32 pad;
};

/* The accepted values outside of the proved range, as far as there is room. */
struct xk_tune_values {
	__u32 id;		/* in: tune */
	__u32 nr_values;	/* in: room; out: total number */
	__u64 values;		/* __s64 * */
};

/* Number and duration of stops of the machine since xk.ko was loaded. */
struct xk_stop_info {
	__u64 nr;
	__u64 total_ns;
	__u64 longest_ns;
	__u64 since_ns;		/* time since it was loaded */
	__u64 stacks;		/* stacks that were read in stops */
};

#define XK_SITE_ARMED _BITUL(0)
#define XK_SITE_OPTIMISED _BITUL(1)	/* a jump, not a breakpoint */
#define XK_SITE_WAITING _BITUL(2)	/* its module is not loaded */
#define XK_SITE_OPT_UNKNOWN _BITUL(3)	/* unreadable, or not the bytes of xk.ko */
#define XK_SITE_BROKEN _BITUL(4)	/* its module was loaded with other code: see reason */
#define XK_SITE_IN_DATA _BITUL(5)	/* an object, no probe; ARMED: it holds what xk.ko wrote */
#define XK_SITE_DRIFTED _BITUL(6)	/* something else wrote to the object: see reason */
#define XK_SITE_DETOUR _BITUL(7)	/* a jump to a stub; never missed */
#define XK_SITE_UNCOUNTED _BITUL(8)	/* hits are counted only during transitions */
#define XK_SITE_PATCH _BITUL(9)	/* the instructions hold the value; never missed */

struct xk_site_info {
	__u32 id;		/* in: tune */
	__u32 index;		/* in: site */
	__u64 address;		/* out, like all that follows: address of the instruction, or 0 */
	char symbol[XK_SYMBOL_LEN];
	char module[XK_MODULE_LEN];
	__u32 offset;
	__u32 flags;		/* XK_SITE_ARMED ... */
	__u64 hits;		/* executions that reached the handler */
	__u64 applied;		/* ... and changed the state */
	__u64 faults;		/* ... and could not access memory: default used */
	__u64 missed;		/* kprobes did not call the handler: default used */
	char reason[XK_ERROR_LEN];	/* why the default is used, if known */
	char note[XK_NAME_LEN];		/* why it is no patch or no detour, if that was requested */
};

/*
 * What the policy of a tune did at one site, whether it is already in force or not. histogram[0]
 * counts values below 1, histogram[n] those from 2^(n-1) to 2^n - 1.
 */
struct xk_policy_info {
	__u32 id;		/* in: tune */
	__u32 index;		/* in: site */
	__u32 program;		/* out, like all that follows: number of the BPF program */
	__u32 nr_links;
	__u64 runs;		/* runs of the program */
	__u64 chosen;		/* executions that used a value that it set */
	__u64 refused;		/* values that the tune does not accept, ignored */
	__u64 skipped;		/* not run: another program was running on this CPU */
	__u64 reused;		/* not run: it had decided in this activation */
	__u64 unseen;		/* not run: no probe saw the activation start */
	__s64 last;		/* value that was used last */
	__u64 histogram[XK_POLICY_BUCKETS];
};

/*
 * LOAD, TRANSITION, LEASE, DETACH and POLICY return -EACCES with a reason unless the descriptor is
 * open for writing, the caller has CAP_SYS_ADMIN during the call, and the kernel is not locked
 * down. Lockdown does not forbid the first four with require_signed=1, nor IGNORE and a transition
 * that only unloads: see docs/privilege.md. The other ioctls only read. Those of probes, 16 to 20,
 * are in xk_probe.h.
 */
#define XK_IOC_MAGIC 0xb7
#define XK_IOC_VERSION _IOR(XK_IOC_MAGIC, 0, struct xk_version)
#define XK_IOC_LOAD _IOWR(XK_IOC_MAGIC, 1, struct xk_load)
#define XK_IOC_TRANSITION _IOWR(XK_IOC_MAGIC, 2, struct xk_transition)
#define XK_IOC_LEASE _IOWR(XK_IOC_MAGIC, 3, struct xk_lease)
#define XK_IOC_DETACH _IOWR(XK_IOC_MAGIC, 4, struct xk_detach)
#define XK_IOC_TUNE_INFO _IOWR(XK_IOC_MAGIC, 5, struct xk_tune_info)
#define XK_IOC_SITE_INFO _IOWR(XK_IOC_MAGIC, 6, struct xk_site_info)
#define XK_IOC_REPORT _IOWR(XK_IOC_MAGIC, 7, struct xk_report)
#define XK_IOC_POLICY _IOWR(XK_IOC_MAGIC, 8, struct xk_policy)
#define XK_IOC_POLICY_INFO _IOWR(XK_IOC_MAGIC, 9, struct xk_policy_info)
#define XK_IOC_TUNE_VALUES _IOWR(XK_IOC_MAGIC, 13, struct xk_tune_values)
#define XK_IOC_STOP_INFO _IOR(XK_IOC_MAGIC, 14, struct xk_stop_info)
#define XK_IOC_IGNORE _IOWR(XK_IOC_MAGIC, 15, struct xk_ignore)

#endif /* _UAPI_XK_H */
