/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Probes: eBPF programs at any instructions.
 *
 * A *point* is an instruction that is probed. It has a *hook* for each attachment, in the order in
 * which they were attached. A *jump* replaces a window of instructions and leads to slots; it
 * serves all points in its window. A *short* jump leads to a *relay*, a jump in the bytes of
 * another one, its *host*. Where no jump is possible, the function tracer serves the point, or a
 * kprobe.
 */
#ifndef _XK_PROBE_H
#define _XK_PROBE_H

#include <linux/filter.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/types.h>

#include "base/deadline.h"
#include "base/error.h"
#include "base/slot_layout.h"
#include "model/place.h"
#include "text/claim.h"
#include "text/internal.h"
#include "text/relocate.h"
#include "uapi/xk_probe.h"

struct module;
struct xk_attachment;
struct xk_guards;
struct xk_jump;
struct xk_shield;

/*
 * What is done at a point. Handlers find it by one pointer, so they never combine two of them. With
 * one hook and a plain program, it is that program; else a function that serves all hooks.
 */
struct xk_act {
	u64 __percpu *hits;
	bpf_func_t func;		/* called with the registers and this act */
};

/* A function of a module. Its places wait while the module is not loaded. */
struct xk_probed_function {
	unsigned long requested;	/* its address in the request */
	struct xk_place place;		/* the address is 0 as long as it waits */
	struct xk_analysed analysed;
	char reason[XK_NAME_LEN];	/* why it waits although its module is loaded */
};

/* A program of an attachment, and what must be done to run it. */
struct xk_probe_program {
	struct bpf_prog *program;	/* NULL: only count */
	bool needs_context;		/* it may read current->bpf_ctx */
	bool needs_kprobes;		/* at entries: it may ask which function runs */
	bool reads_all;			/* it may read all registers */
	bool is_plain;			/* it may be called without preparation */
};

struct xk_hook {
	struct xk_act alone;		/* for a point that has only this hook */
	struct xk_hook *next;		/* of the same point; read by handlers */
	u64 __percpu *hits;
	struct xk_attachment *attachment;
	const struct xk_probe_program *program;
	u64 cookie;
	struct xk_point *point;		/* NULL: it waits */
	bool added;			/* to the hooks of the point */
	unsigned long requested;	/* its address in the request */
	struct xk_probed_function *function;	/* NULL: it never waits */
	struct module *module;		/* with a reference, if it never waits; else NULL */
	const char *why_held;		/* although the request has its function */
	const char *why_waiting;	/* although its function is there */
	u64 missed;			/* by kprobes, before its module was loaded again */
};

struct xk_point {
	unsigned long address;		/* XK_POINT_ADDRESS */
	const struct xk_act *act;
	struct xk_act all;		/* serves all hooks */
	struct xk_hook *first;
	struct xk_jump *jump;		/* NULL: the tracer or `kprobe` serves it, or nothing yet */
	bool wants_all;			/* some program reads all registers */
	bool saves_all;			/* the code in force stores all of them */
	bool in_code;			/* the code in force of the jump calls for this point */
	struct kprobe kprobe;
	bool has_kprobe;
	struct hlist_node by_entry;	/* see traced.c */
	bool is_traced;			/* the function tracer calls the handler */
	bool no_kprobe;			/* kprobes would emulate the instruction wrongly */
	const char *why_no_jump;
	const struct module *module;	/* of its function; NULL for vmlinux */
};

/* Jumps that are written or removed in one stop. Their number determines how long it takes. */
#define XK_JUMPS_PER_STOP 512
/* Each may need a shield. */
#define XK_POKES_PER_STOP (2 * XK_JUMPS_PER_STOP)

/* Counters that fit into one allocation of per-CPU memory. */
#define XK_HITS_PER_BLOCK 1024

struct xk_attachment {
	struct list_head list;
	u32 id;
	const struct file *owner;	/* NULL if it is kept */
	pid_t owner_pid;
	struct xk_deadline lease;
	u64 attached_ns;
	char name[XK_NAME_LEN];
	struct xk_probe_program *programs;	/* at least one */
	unsigned int nr_programs;	/* 0: the only one counts */
	bool jumps_only;		/* nothing else may reach its places */
	u64 __percpu *skipped;
	u64 __percpu **hits;		/* blocks of XK_HITS_PER_BLOCK counters */
	unsigned int nr_hits;		/* blocks */
	struct xk_probed_function *functions;	/* ascending by requested address */
	unsigned int nr_functions;
	unsigned int nr;
	struct xk_hook hooks[] __counted_by(nr);
};

/* The slots that a jump leads to. */
struct xk_jump_code {
	struct list_head list;
	unsigned int nr;
	unsigned long slots[XK_MAX_WINDOW_INSNS];
};

/* A jump in place of a window. */
struct xk_jump {
	struct list_head list;		/* to be armed, or retired */
	struct xk_claim claim;
	struct xk_window window;
	struct xk_guards *guards;
	struct xk_shield *shield;	/* NULL: no branch is moved, or guards protect its target */
	struct xk_point *points[XK_MAX_WINDOW_INSNS];	/* by instruction */
	struct xk_jump_code *code;	/* NULL until it is armed */
	struct xk_jump_code *next;	/* to be armed; once it is, the previous code */
	struct xk_jump *host;		/* of a short jump; holds its relay: see relay.c */
	struct xk_jump *guest;		/* of a host: the short jump that needs it */
	bool is_host;			/* it ends in a relay, needed or not */
	u8 relay[XK_JUMP_LEN];		/* of a host */
	bool wanted;			/* `next` is to be armed */
	bool retired;			/* about to be removed: takes no more points */
	bool entered;			/* a thread was in the middle of the window */
	const char *why;		/* why it could not be armed */
};

/* Whether it has two bytes and leads to a relay. */
static inline bool xk_jump_is_short(const struct xk_jump *jump)
{
	return jump->window.len < XK_JUMP_LEN;
}

static inline bool xk_jump_is_armed(const struct xk_jump *jump)
{
	return jump->code;
}

#endif /* _XK_PROBE_H */
