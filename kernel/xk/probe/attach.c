// SPDX-License-Identifier: GPL-2.0-only
/* Attaches programs to many places: one transaction in few stops. */
#include <linux/err.h>
#include <linux/kallsyms.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#include "backend/guard.h"
#include "base/lock.h"
#include "model/backend.h"
#include "model/trace.h"
#include "policy/policy.h"
#include "probe/attach.h"
#include "probe/jump.h"
#include "probe/point.h"
#include "probe/program.h"
#include "probe/relay.h"
#include "probe/run.h"
#include "probe/traced.h"

LIST_HEAD(xk_attachments);
static u32 last_id;

/* An attachment that is being made. */
struct making {
	struct xk_attachment *attachment;
	const struct xk_probe_place *places;
	const s32 *programs;
	struct xk_probe_attach *request;
	struct xk_plan plan;
	struct xk_error *error;
};

static int refuse_place(struct making *making, u32 index, int ret, const char *why)
{
	making->request->refused = index;
	return xk_refuse(making->error, ret, "%pS: %s",
			 (void *)making->places[index].address, why);
}

/* Neither a jump nor a kprobe is possible. */
static int refuse_both(struct making *making, u32 index, int ret)
{
	const struct xk_point *point = making->attachment->hooks[index].point;
	const char *why = "the kernel forbids it here";

	if (point->no_kprobe)
		why = "the kernel emulates a call with a prefix wrongly";
	else if (ret == -EADDRNOTAVAIL)
		why = "it marks the entry; probe the instruction after it";
	making->request->refused = index;
	return xk_refuse(making->error, -EOPNOTSUPP, "%pS: no jump: %s; no kprobe: %s",
			 (void *)point->address, point->why_no_jump ?: "it failed", why);
}

static u64 __percpu *counter_of(const struct xk_attachment *attachment, u32 index)
{
	return attachment->hits[index / XK_HITS_PER_BLOCK] + index % XK_HITS_PER_BLOCK;
}

static int create_counters(struct xk_attachment *attachment)
{
	unsigned int i, nr = DIV_ROUND_UP(attachment->nr, XK_HITS_PER_BLOCK);

	attachment->skipped = alloc_percpu(u64);
	attachment->hits = kcalloc(nr, sizeof(*attachment->hits), GFP_KERNEL);
	if (!attachment->skipped || !attachment->hits)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		attachment->hits[i] = __alloc_percpu(XK_HITS_PER_BLOCK * sizeof(u64), sizeof(u64));
		if (!attachment->hits[i])
			return -ENOMEM;
		attachment->nr_hits++;
	}
	return 0;
}

static void fill_hook(struct making *making, u32 index)
{
	struct xk_attachment *attachment = making->attachment;
	struct xk_hook *hook = &attachment->hooks[index];
	const struct bpf_prog *program;

	hook->attachment = attachment;
	hook->program = &attachment->programs[making->places[index].program];
	hook->requested = making->places[index].address;
	hook->cookie = making->places[index].cookie;
	hook->hits = counter_of(attachment, index);
	hook->alone.hits = hook->hits;
	program = hook->program->program;
	hook->alone.func = program ? program->bpf_func : xk_probe_count;
}

/* A tune that changes the instruction could not do so while a kprobe is on it. */
static bool must_not_be_trapped(const struct xk_point *point)
{
	return xk_backends_hold_value(NULL, point->address);
}

/* Whether the code in force stores what the program may read. */
static bool may_run(const struct xk_hook *hook)
{
	const struct xk_point *point = hook->point;

	return !point->in_code || point->saves_all || !hook->program->reads_all;
}

static void add(struct xk_hook *hook)
{
	xk_hook_add(hook);
	hook->added = true;
}

/* Its places wait for the module, or the module must stay. */
static const char *hold_module(struct xk_hook *hook)
{
	/* As long as xk_lock is held, it is loaded. */
	struct module *module = (struct module *)hook->point->module;
	struct xk_probed_function *function;

	if (!module)
		return NULL;
	function = xk_probed_function_at(hook->attachment, hook->requested);
	if (function && function->place.function) {
		hook->function = function;
		return NULL;
	}
	if (function)
		hook->why_held = function->reason;
	if (!try_module_get(module))
		return "its module is being removed";
	hook->module = module;
	return NULL;
}

static int plan_place(struct making *making, u32 index)
{
	const struct xk_probe_place *place = &making->places[index];
	struct xk_hook *hook = &making->attachment->hooks[index];
	const char *why = NULL;

	hook->point = xk_point_find(place->address);
	if (!hook->point) {
		hook->point = xk_point_create(&making->plan, place->address, &why);
		if (!hook->point)
			return refuse_place(making, index, -EINVAL, why);
		if (must_not_be_trapped(hook->point))
			return refuse_place(making, index, -EBUSY,
					    "a tune changes this instruction");
		hook->point->why_no_jump = xk_jump_plan(&making->plan, hook->point, place);
	}
	why = hold_module(hook);
	if (why)
		return refuse_place(making, index, -EBUSY, why);
	hook->point->wants_all |= hook->program->reads_all;
	if (may_run(hook))
		add(hook);
	else
		xk_jump_plan_again(hook->point, &making->plan.jumps);
	return 0;
}

static int plan_kind(struct making *making, bool are_short)
{
	u32 i;
	int ret = 0;

	for (i = 0; i < making->attachment->nr && !ret; i++) {
		if (!making->places[i].host_window == are_short)
			continue;
		fill_hook(making, i);
		ret = plan_place(making, i);
		if (!ret && fatal_signal_pending(current))
			ret = -EINTR;
		cond_resched();
	}
	return ret;
}

/* Hosts of short jumps first: other places share them. */
static int plan(struct making *making)
{
	int ret = plan_kind(making, true);

	return ret ?: plan_kind(making, false);
}

/*
 * The jump was not written, or not redirected to code that serves its new points. It forgets them.
 * A new jump is freed.
 */
static void give_up(struct xk_jump *jump)
{
	unsigned int i;

	for (i = 0; i < jump->window.nr; i++) {
		struct xk_point *point = jump->points[i];

		if (!point)
			continue;
		point->wants_all = point->saves_all;
		if (point->in_code)
			continue;
		point->why_no_jump = jump->why;
		point->jump = NULL;
		jump->points[i] = NULL;
	}
	if (xk_jump_is_armed(jump))
		list_del_init(&jump->list);
	else
		xk_jump_drop(jump);
}

static void give_up_all(struct list_head *jumps)
{
	struct xk_jump *jump, *next;

	list_for_each_entry_safe(jump, next, jumps, list)
		give_up(jump);
}

static void arm(struct making *making)
{
	/* Probes that only asked kprobes would be taken for those of someone else. */
	xk_guards_flush();
	making->request->stops += xk_jumps_arm(&making->plan.jumps);
	give_up_all(&making->plan.jumps);
	making->request->stops += xk_relay_retire_hosts();
	xk_guards_flush();
}

static bool is_served(const struct xk_point *point)
{
	return point->in_code || point->is_traced || point->has_kprobe;
}

/* The jumps are in force. Adds the hooks that needed them. */
static int finish_hook(struct making *making, u32 index)
{
	struct xk_hook *hook = &making->attachment->hooks[index];
	const struct xk_point *point = hook->point;

	if (!hook->added && !may_run(hook))
		return refuse_place(making, index, -EBUSY, point->jump->why);
	if (!point->in_code && making->request->flags & XK_PROBE_JUMPS_ONLY)
		return refuse_place(making, index, -EOPNOTSUPP, point->why_no_jump ?: "it failed");
	if (point->is_traced && hook->program->needs_kprobes)
		return refuse_place(making, index, -EBUSY,
				    "bpf_get_func_ip() needs a kprobe, and other probes of this entry have none");
	if (!hook->added)
		add(hook);
	making->request->nr_jumps += point->in_code;
	return 0;
}

static bool is_for_tracer(const struct xk_hook *hook)
{
	return !hook->program->needs_kprobes && !is_served(hook->point) &&
	       xk_is_traced(hook->point->address);
}

/* All entries of functions in one change of text. */
static int trace(struct making *making)
{
	struct xk_attachment *attachment = making->attachment;
	u32 i, nr = 0, last = 0;
	struct xk_point **points;
	int ret;

	points = kvmalloc_array(attachment->nr, sizeof(*points), GFP_KERNEL);
	if (!points)
		return -ENOMEM;
	for (i = 0; i < attachment->nr; i++) {
		if (!is_for_tracer(&attachment->hooks[i]))
			continue;
		points[nr++] = attachment->hooks[i].point;
		last = i;
	}
	ret = xk_traced_add(points, nr);
	kvfree(points);
	return ret ? refuse_place(making, last, ret, "the function tracer refuses it") : 0;
}

static int trap(struct making *making, u32 index)
{
	struct xk_point *point = making->attachment->hooks[index].point;
	int ret;

	if (is_served(point))
		return 0;
	ret = xk_point_trap(point);
	if (ret == -ENOMEM)
		return refuse_place(making, index, ret, "no memory for a kprobe");
	return ret ? refuse_both(making, index, ret) : 0;
}

/* Where neither a jump nor the tracer is possible. */
static int trap_all(struct making *making)
{
	u32 i;
	int ret = 0;

	for (i = 0; i < making->attachment->nr && !ret; i++)
		ret = trap(making, i);
	for (i = 0; i < making->attachment->nr && !ret; i++) {
		ret = xk_point_start(making->attachment->hooks[i].point);
		if (ret)
			ret = refuse_both(making, i, ret);
	}
	return ret;
}

static int make(struct making *making)
{
	u32 i;
	int ret;

	ret = create_counters(making->attachment);
	if (!ret)
		ret = xk_probe_programs_take(making->attachment, making->programs,
					     making->request->nr_programs, making->error);
	if (!ret)
		ret = xk_probed_functions_verify(making->attachment);
	xk_allowed_create(&making->plan.allowed);
	if (!ret)
		ret = plan(making);
	if (!ret)
		arm(making);
	for (i = 0; i < making->attachment->nr && !ret; i++)
		ret = finish_hook(making, i);
	if (!ret)
		ret = trace(making);
	return ret ?: trap_all(making);
}

static struct xk_attachment *create(const struct file *caller,
				    const struct xk_probe_attach *request)
{
	struct xk_attachment *attachment;

	attachment = kvzalloc(struct_size(attachment, hooks, request->nr_places), GFP_KERNEL);
	if (!attachment)
		return NULL;
	INIT_LIST_HEAD(&attachment->list);
	attachment->nr = request->nr_places;
	attachment->jumps_only = request->flags & XK_PROBE_JUMPS_ONLY;
	attachment->owner = caller;
	attachment->owner_pid = task_tgid_nr(current);
	xk_attachment_lease_create(attachment);
	attachment->attached_ns = ktime_get_boottime_ns();
	strscpy(attachment->name, request->name);
	return attachment;
}

int xk_probe_attach(const struct file *caller, struct xk_probe_attach *request,
		    const struct xk_probe_place *places, const s32 *programs,
		    struct xk_probed_function *functions, struct xk_error *error)
{
	struct making making = {
		.places = places,
		.programs = programs,
		.request = request,
		.error = error,
	};
	int ret;

	INIT_LIST_HEAD(&making.plan.jumps);
	request->refused = request->nr_places;
	/* An earlier attachment may still hold some of these instructions. */
	xk_retired_flush();
	making.attachment = create(caller, request);
	if (!making.attachment) {
		xk_probed_functions_free(functions, request->nr_functions);
		return -ENOMEM;
	}
	making.attachment->functions = functions;
	making.attachment->nr_functions = request->nr_functions;
	mutex_lock(&xk_lock);
	ret = make(&making);
	if (!ret) {
		making.attachment->id = ++last_id;
		request->id = last_id;
		list_add_tail(&making.attachment->list, &xk_attachments);
		trace_xk_probe_attach(request->name, last_id, request->nr_programs,
				      request->nr_places, request->nr_jumps, request->stops);
	} else {
		/* Those that were planned, and not written. */
		give_up_all(&making.plan.jumps);
		request->stops += xk_attachment_destroy(making.attachment);
	}
	xk_function_free(&making.plan.function);
	xk_allowed_free(&making.plan.allowed);
	mutex_unlock(&xk_lock);
	return ret;
}
