/* SPDX-License-Identifier: GPL-2.0-only */
/* A site of a loaded tune; struct xk_site is how user space describes it. */
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

/* Bytes that arming may overwrite: a five-byte jump. */
#define XK_PATCH_LEN 5

struct xk_counters {
	u64 hits;
	u64 faults;
};

/* What a backend keeps of a site. In place, so that a handler finds the site from it. */
struct xk_site_private {
	unsigned long words[DIV_ROUND_UP(sizeof(struct kprobe), sizeof(unsigned long))];
};

struct xk_live_site {
	/* What a handler touches comes first. */
	struct xk_site_private private;		/* of the backend */
	struct xk_values *const *values;	/* of the tune */
	struct xk_counters __percpu *counters;
	u32 values_offset;			/* of this site in them */
	u32 index;				/* in the tune */
	struct xk_native native;
	xk_native_fn code;			/* of XK_NATIVE_CODE: code.c */

	struct xk_op linked[XK_MAX_OPS];	/* for the plain interpreter */
	struct xk_stub *code_room;		/* where the code is; or NULL */
	struct xk_tune *tune;
	const struct xk_backend *backend;
	const char *why_not;			/* a backend that the tune prefers; or NULL */
	struct xk_place place;
	unsigned long address;			/* of the probed instruction, or value */
	u32 offset;
	u32 reach;				/* bytes before it that the proof covers */
	u8 insn_len;				/* in data: width of the value */
	u8 window;				/* bytes that a detour may replace */
	u8 window_lead;				/* how many of them lie before it */
	u8 when;
	bool in_data;				/* no code, but an object */
	enum xk_phase phase;
	u8 original[XK_PATCH_LEN];		/* bytes that arming overwrites */
	u64 missed;				/* before the module was last reloaded */

	char reason[XK_ERROR_LEN];		/* of XK_PHASE_BROKEN */
	/* Of sites in vmlinux only until they are armed. */
	struct xk_op *ops;			/* not linked */
	unsigned int nr_ops;
	unsigned int nr_ivs;
	struct xk_iv ivs[XK_MAX_IVS];
	unsigned int nr_patches;
	struct xk_patch patches[XK_MAX_PATCHES];
};

/* One tune may act before an instruction and after it; then it must be executed. */
static inline bool xk_whens_collide(u8 a, u8 b)
{
	return a == b || a == XK_INSTEAD || b == XK_INSTEAD;
}

static inline bool xk_data_overlap(const struct xk_live_site *a, const struct xk_live_site *b)
{
	return a->in_data && b->in_data && a->address < b->address + b->insn_len &&
	       b->address < a->address + a->insn_len;
}

#endif /* _XK_SITE_H */
