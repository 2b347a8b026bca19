/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of xk.ko know about each other. */
#ifndef _XK_H
#define _XK_H

#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/types.h>

#include "error.h"
#include "native.h"
#include "requires.h"
#include "uapi/xk.h"

#define XK_VERSION_STRING "0.1.0"

/* Bytes that arming may overwrite: a five-byte jump. */
#define XK_PATCH_LEN 5

struct file;
struct xk_backend;
struct xk_request;
struct xk_live_patch;
struct xk_live_policy;
struct xk_policy_cpu;
struct xk_settling;
struct xk_stub;
struct xk_tune;
struct xk_turn;
struct xk_window;
struct workqueue_struct;

struct xk_counters {
	u64 hits;
	u64 faults;
};

/* What depends on the value of a tune at one site. */
struct xk_site_values {
	const struct xk_values *of;		/* what it is a part of */
	u64 constants[XK_NATIVE_CONSTANTS];	/* of native code */
	u64 ivs[XK_MAX_IVS];		/* of the plain interpreter */
	struct xk_policy_cpu __percpu *decided;	/* by a policy */
};

/*
 * Everything that depends on the value of a tune, for all its sites. Replaced
 * as a whole by one pointer store, so that no execution of a site mixes two
 * values; freed when no handler can be using it.
 */
struct xk_values {
	/* While some still use the values from before: who; see version.c. */
	const struct xk_settling *settling;
	struct xk_values *before;	/* means something only while that is set */
	struct xk_live_policy *policy;	/* decides; `value` where it does not; or NULL */
	struct rcu_head rcu;
	bool in_stubs;			/* code in stubs may hold a pointer into it */
	s64 value;
	unsigned int nr_sites;
	struct xk_site_values sites[] __counted_by(nr_sites);
};

/* What the analysis saw of a function; shared by what a tune has in it. */
struct xk_text {
	unsigned int users;
	u64 bytes_at;		/* where it is in the table: tells two apart */
	u64 mask_at;
	u32 len;
	u8 *bytes;
	u8 *mask;
};

/* A function, or, of a site in data, an object. */
struct xk_place {
	unsigned long function;		/* its address; 0: not known */
	char symbol[XK_SYMBOL_LEN];
	char module[XK_MODULE_LEN];
	/* Of vmlinux only until it was verified. */
	struct xk_text *text;
};

/* What has become of a site or a scope. */
enum xk_phase {
	XK_PHASE_IDLE,		/* described only, or disarmed at the end */
	XK_PHASE_WAITING,	/* its module is not loaded */
	XK_PHASE_READY,		/* verified; a site will be armed in a moment */
	XK_PHASE_ARMED,
	XK_PHASE_BROKEN,	/* its module came, but not with the code that was analysed */
};

/* A site of a loaded tune; struct xk_site is how user space describes it. */
struct xk_live_site {
	/* What a handler touches comes first. */
	struct kprobe kprobe;			/* of backend_kprobe.c */
	struct xk_values *const *values;	/* of the tune */
	struct xk_counters __percpu *counters;
	u32 values_offset;			/* of this site in them */
	u32 index;				/* in the tune */
	struct xk_native native;
	xk_native_fn code;			/* of XK_NATIVE_CODE: code.c */

	struct xk_op linked[XK_MAX_OPS];	/* for the plain interpreter */
	struct xk_stub *code_room;		/* where the code is; or NULL */
	struct xk_tune *tune;
	const struct xk_backend *backend;	/* NULL in data */
	struct xk_stub *stub;			/* of backend_detour.c */
	const char *no_detour;			/* why, or NULL */
	struct xk_live_patch *patch;		/* of backend_patch.c */
	const char *no_patch;			/* why, or NULL */
	struct xk_place place;
	unsigned long address;			/* of the probed instruction, or value */
	u32 offset;
	u32 reach;				/* bytes before it that the proof covers */
	u8 insn_len;				/* in data: width of the value */
	u8 window;				/* bytes that a detour may replace */
	u8 window_lead;				/* so many of them lie before it */
	u8 when;
	bool in_data;				/* no code: see data.c */
	enum xk_phase phase;
	u64 written;				/* in data: what xk wrote last, or found */
	bool constant;				/* in data: mapped read-only */
	void *alias;				/* ... writable, while it is written; or NULL */
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

/* Where a thread may hold a value that depends on the constant. */
struct xk_live_scope {
	struct xk_place place;
	enum xk_phase phase;		/* READY: it counts */
	unsigned int nr_ranges;
	struct xk_range *ranges;
};

struct xk_tune {
	struct list_head list;
	u32 id;
	char name[XK_NAME_LEN];
	s64 default_value;
	s64 min;			/* proved range; min > max: there is none */
	s64 max;
	s64 *compiled;			/* accepted besides, strictly ascending */
	unsigned int nr_compiled;
	bool detours;			/* where they are safe */
	bool detours_only;
	bool patches;			/* where they are possible */
	bool patches_only;
	struct xk_values *values;	/* read by handlers */
	struct xk_live_policy *policy;	/* for the next transition that asks for one, or NULL */
	struct xk_turn *turn;		/* the transition that it is in, or NULL */
	enum xk_mode least_mode;	/* a signature covers no weaker one */
	enum xk_mode mode;		/* of the last one; how it will be unloaded */
	bool doomed;			/* to be unloaded, when its transition is over */
	struct file *owner;		/* NULL when detached */
	pid_t owner_pid;
	u64 loaded_at;			/* boot time */
	u64 lease_end;			/* boot time; 0: none */
	unsigned int nr_ignored;
	struct task_struct *ignored[XK_MAX_IGNORED];	/* ignore.c */
	unsigned int nr_scopes;
	struct xk_live_scope *scopes;
	unsigned int nr_sites;
	struct xk_live_site sites[] __counted_by(nr_sites);
};

/* Guards the list of tunes and everything in it but what handlers read. */
extern struct mutex xk_lock;
extern struct list_head xk_tunes;

/* For what goes on where nobody waits. */
extern struct workqueue_struct *xk_workqueue;

/* tune.c */
int xk_tune_load(struct file *owner, struct xk_load *load, struct xk_error *error);
int xk_tune_detach(struct file *caller, u32 id, struct xk_error *error);
struct xk_tune *xk_tune_find(u32 id);
struct xk_tune *xk_tune_find_owned(struct file *caller, u32 id, struct xk_error *error);
bool xk_tune_accepts(const struct xk_tune *tune, s64 value);
void xk_tune_remove(struct xk_tune *tune);
void xk_tune_release(struct file *owner);
void xk_tune_unload_all(void);
void xk_tune_module_coming(const struct module *module);
void xk_tune_module_going(const struct module *module);

/* info.c */
int xk_tune_info(struct xk_tune_info *info);
int xk_tune_values(u32 id, s64 *values, u32 *nr_values);
int xk_tune_site_info(struct xk_site_info *info);

/* values.c */
struct xk_values *xk_values_create(const struct xk_tune *tune, s64 value,
				   struct xk_live_policy *policy);
void xk_values_fill(struct xk_values *values, const struct xk_live_site *site);
void xk_values_free(struct xk_values *values);
void xk_values_retire(struct xk_values *values);

/* code.c */
void xk_code_prepare(struct xk_live_site *site);
void xk_code_free(struct xk_live_site *site);

/* text.c */
struct xk_text *xk_text_get(struct xk_tune *tune, const struct xk_request *request, u64 bytes,
			    u64 mask, u32 len);
void xk_text_put(struct xk_text *text);
int xk_place_name(struct xk_place *place, const char *symbol, const char *module,
		  const char *what, unsigned int index, struct xk_error *error);

/* site.c */
int xk_site_init(struct xk_tune *tune, unsigned int index,
		 const struct xk_request *request, struct xk_error *error);
void xk_site_destroy(struct xk_live_site *site);
void xk_site_free_source(struct xk_live_site *site);
int xk_site_link(struct xk_live_site *site, const u8 *text, u32 len, struct xk_error *error);
unsigned long xk_site_start(const struct xk_live_site *site);
unsigned long xk_site_end(const struct xk_live_site *site);
const char *xk_branch_into(const struct xk_live_site *site, const struct xk_window *window,
			   const u8 *text);
void xk_site_describe(const struct xk_live_site *site, struct xk_site_info *info);
bool xk_site_ill(const struct xk_live_site *site);

/* One tune may act before an instruction and after it; then it must be executed. */
static inline bool xk_whens_collide(u8 a, u8 b)
{
	return a == b || a == XK_INSTEAD || b == XK_INSTEAD;
}

/* scope.c */
int xk_scope_init(struct xk_tune *tune, unsigned int index,
		  const struct xk_request *request, struct xk_error *error);
void xk_scope_destroy(struct xk_live_scope *scope);
int xk_scopes_verify(struct xk_tune *tune, struct xk_error *error);
int xk_scopes_verify_module(struct xk_tune *tune, const struct module *module,
			    struct xk_error *error);
void xk_scopes_await_module(struct xk_tune *tune, const struct module *module);

/* arm.c */
int xk_sites_verify(struct xk_tune *tune, struct xk_error *error);
int xk_sites_arm(struct xk_tune *tune, struct xk_error *error);
void xk_sites_disarm(struct xk_tune *tune);
int xk_sites_open_data(struct xk_tune *tune, s64 value);
void xk_sites_write_data(struct xk_tune *tune, s64 value);
void xk_sites_close_data(struct xk_tune *tune);
void xk_sites_module_coming(struct xk_tune *tune, const struct module *module);
void xk_sites_await_module(struct xk_tune *tune, const struct module *module);

/* module.c */
const struct module *xk_module_get(const char *name);
void xk_module_put(const struct module *module);
unsigned int xk_module_symbols(const struct module *module, const char *name,
			       enum mod_mem_type type, unsigned long *addresses,
			       unsigned int nr_addresses);

/* data.c */
int xk_data_verify(struct xk_live_site *site, const struct module *module,
		   struct xk_error *error);
void xk_data_write(struct xk_live_site *site, s64 value);
int xk_data_open(struct xk_live_site *site, s64 value, struct xk_error *error);
void xk_data_close(struct xk_live_site *site);
bool xk_data_in_force(const struct xk_live_site *site, char *reason, size_t size);

static inline bool xk_data_overlap(const struct xk_live_site *a, const struct xk_live_site *b)
{
	return a->in_data && b->in_data && a->address < b->address + b->insn_len &&
	       b->address < a->address + a->insn_len;
}

/* verify.c */
struct xk_symbol {
	const char *name;
	const char *module;	/* "" for vmlinux */
	unsigned long offset;
	unsigned long size;
};

bool xk_symbol_at(unsigned long address, char *text, struct xk_symbol *symbol);
int xk_place_verify(struct xk_place *place, const struct module *module, u32 probed,
		    u8 *view, u32 len, struct xk_error *error);

/* claim.c */
const struct xk_live_site *xk_holder(const struct xk_live_site *site,
				     bool (*conflict)(const struct xk_live_site *site,
						      const struct xk_live_site *other));
int xk_verify_site(struct xk_live_site *site, const struct module *module,
		   struct xk_error *error);

/* version.c */
int xk_handle_settling(const struct xk_live_site *site, const struct xk_values *values,
		       struct pt_regs *regs);
int xk_fault(const struct xk_live_site *site);

/* transition.c */
int xk_transition(struct file *caller, struct xk_transition *request,
		  struct xk_change *changes, char *report, struct xk_error *error);
int xk_transition_report(u32 id, char *report, size_t size);
void xk_turn_fill(struct xk_tune *tune, const struct xk_live_site *site);
u32 xk_turn_state(const struct xk_tune *tune, unsigned int *blocking);
void xk_unload_start(struct xk_tune *tune);

/* lease.c */
int xk_lease_set(struct file *caller, u32 id, u64 ns, struct xk_error *error);
void xk_lease_retry(struct xk_tune *tune);
void xk_lease_init(void);
void xk_lease_exit(void);

#endif /* _XK_H */
