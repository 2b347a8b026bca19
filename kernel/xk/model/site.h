/* SPDX-License-Identifier: GPL-2.0-only */
/* A site of a loaded tune. struct xk_site in uapi/xk.h is its description by user space. */
#ifndef _XK_SITE_H
#define _XK_SITE_H

#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/types.h>

#include "base/error.h"
#include "model/place.h"
#include "ops/native.h"

struct xk_backend;
struct xk_stub;
struct xk_tune;
struct xk_values;

/* Bytes that a kprobe may overwrite when it is armed: a five-byte jump. */
#define XK_PATCH_LEN 5

struct xk_counters {
	u64 hits;
	u64 faults;
};

/* Storage of a backend for one site. Embedded, so that a handler finds the site from it. */
struct xk_site_private {
	unsigned long words[DIV_ROUND_UP(sizeof(struct kprobe), sizeof(unsigned long))];
};

struct xk_live_site {
	/* Members that handlers use come first. */
	struct xk_site_private private;		/* owned by the backend */
	struct xk_values *const *values;	/* points to the tune's version in force */
	struct xk_counters __percpu *counters;
	u32 values_offset;			/* offset of this site's part in a version */
	u32 index;				/* in tune.sites */
	struct xk_native native;
	xk_native_fn code;			/* for XK_NATIVE_CODE: see core/code.c */

	struct xk_op linked[XK_MAX_OPS];	/* operations for the interpreter */
	struct xk_stub *code_room;		/* stub that contains `code`; or NULL */
	struct xk_tune *tune;
	const struct xk_backend *backend;
	const char *why_not;			/* why a preferred backend is not used; or NULL */
	struct xk_place place;
	unsigned long address;			/* of the instruction or the object; 0 if unknown */
	u32 offset;
	u32 reach;				/* bytes before it that the proof covers */
	u8 insn_len;				/* of a site in data: width of the value */
	u8 window;				/* bytes that a detour may replace */
	u8 window_lead;				/* bytes of the window before the site */
	u8 when;
	bool in_data;				/* the site is an object, not code */
	enum xk_phase phase;
	u8 original[XK_PATCH_LEN];		/* bytes that arming overwrites */
	u64 missed;				/* by probes that were unregistered */

	char reason[XK_ERROR_LEN];		/* why the phase is XK_PHASE_BROKEN */
	/* For sites in vmlinux, `ops` is freed when they are armed. */
	struct xk_op *ops;			/* as in the table, before linking */
	unsigned int nr_ops;
	unsigned int nr_ivs;
	struct xk_iv ivs[XK_MAX_IVS];
	unsigned int nr_patches;
	struct xk_patch patches[XK_MAX_PATCHES];
};

/*
 * Whether two updates at one instruction exclude each other. One tune may have updates both before
 * and after an instruction, but not if one of them replaces the instruction.
 */
static inline bool xk_whens_collide(u8 a, u8 b)
{
	return a == b || a == XK_INSTEAD || b == XK_INSTEAD;
}

/* Whether both sites are in data and their objects overlap. */
static inline bool xk_data_overlap(const struct xk_live_site *a, const struct xk_live_site *b)
{
	return a->in_data && b->in_data && a->address < b->address + b->insn_len &&
	       b->address < a->address + a->insn_len;
}

#endif /* _XK_SITE_H */
