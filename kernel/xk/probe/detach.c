// SPDX-License-Identifier: GPL-2.0-only
/* Ends attachments. A point without hooks is removed; its jump, if it serves no other point. */
#include <linux/bpf.h>
#include <linux/err.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "backend/guard.h"
#include "base/lock.h"
#include "model/trace.h"
#include "probe/allowed.h"
#include "probe/attach.h"
#include "probe/jump.h"
#include "probe/point.h"
#include "probe/program.h"
#include "probe/traced.h"
#include "text/slot.h"

static bool is_needed(const struct xk_jump *jump)
{
	unsigned int i;

	if (jump->guest)
		return true;
	for (i = 0; i < jump->window.nr; i++)
		if (jump->points[i] && jump->points[i]->first)
			return true;
	return false;
}

void xk_jump_retire_unused(struct xk_jump *jump, struct list_head *jumps)
{
	unsigned int i;

	if (is_needed(jump) || !list_empty(&jump->list))
		return;
	for (i = 0; i < jump->window.nr; i++)
		if (jump->points[i])
			xk_point_forget(jump->points[i]);
	list_add_tail(&jump->list, jumps);
}

/* Points that are served by kprobes and by the function tracer. */
struct leaving {
	struct kprobe **probes;
	struct xk_point **traced;
	unsigned int nr_probes, nr_traced;
};

/* Without memory, one after the other. */
static void leave(struct leaving *leaving, struct xk_point *point)
{
	if (point->is_traced && leaving->traced)
		leaving->traced[leaving->nr_traced++] = point;
	else if (point->is_traced)
		xk_traced_remove(&point, 1);
	if (point->has_kprobe && leaving->probes)
		leaving->probes[leaving->nr_probes++] = &point->kprobe;
	else if (point->has_kprobe)
		unregister_kprobe(&point->kprobe);
}

static void leave_all(struct leaving *leaving)
{
	if (leaving->nr_probes)
		unregister_kprobes(leaving->probes, leaving->nr_probes);
	xk_traced_remove(leaving->traced, leaving->nr_traced);
	kvfree(leaving->probes);
	kvfree(leaving->traced);
}

static void free_counters(struct xk_attachment *attachment)
{
	unsigned int i;

	for (i = 0; i < attachment->nr_hits; i++)
		free_percpu(attachment->hits[i]);
	kfree(attachment->hits);
	free_percpu(attachment->skipped);
}

/* `module`: only those in it. */
static bool has_point(const struct xk_hook *hook, const struct module *module)
{
	return hook->point && (!module || hook->point->module == module);
}

/* Of points without hooks. No jump serves those that are freed by the caller. */
static unsigned int remove_points(struct xk_attachment *attachment, const struct module *module)
{
	struct leaving leaving = {};
	LIST_HEAD(jumps);
	u32 i;

	leaving.probes = kvmalloc_array(attachment->nr, sizeof(*leaving.probes), GFP_KERNEL);
	leaving.traced = kvmalloc_array(attachment->nr, sizeof(*leaving.traced), GFP_KERNEL);
	for (i = 0; i < attachment->nr; i++) {
		struct xk_hook *hook = &attachment->hooks[i];

		if (!has_point(hook, module) || hook->point->first)
			continue;
		if (hook->point->jump) {
			xk_jump_retire_unused(hook->point->jump, &jumps);
			continue;
		}
		xk_point_forget(hook->point);
		leave(&leaving, hook->point);
	}
	leave_all(&leaving);
	return list_empty(&jumps) ? 0 : xk_jumps_retire(&jumps);
}

static void forget_point(struct xk_hook *hook)
{
	struct xk_point *point = hook->point;

	hook->missed += xk_point_missed(point);
	/* One with a jump is freed later. */
	if (!point->first && !point->jump)
		xk_point_free(point);
	hook->point = NULL;
	hook->added = false;
}

unsigned int xk_attachment_leave(struct xk_attachment *attachment, const struct module *module)
{
	unsigned int stops;
	u32 i;

	lockdep_assert_held(&xk_lock);
	for (i = 0; i < attachment->nr; i++)
		if (has_point(&attachment->hooks[i], module))
			xk_hook_remove(&attachment->hooks[i]);
	stops = remove_points(attachment, module);
	/* No handler uses a hook any more. */
	synchronize_rcu();
	for (i = 0; i < attachment->nr; i++)
		if (has_point(&attachment->hooks[i], module))
			forget_point(&attachment->hooks[i]);
	return stops;
}

unsigned int xk_attachment_destroy(struct xk_attachment *attachment)
{
	unsigned int stops;
	u32 i;

	list_del(&attachment->list);
	xk_deadline_set(&attachment->lease, 0);
	stops = xk_attachment_leave(attachment, NULL);
	/* One that was refused has no number. */
	if (attachment->id)
		trace_xk_probe_detach(attachment->name, attachment->id, stops);
	for (i = 0; i < attachment->nr; i++)
		module_put(attachment->hooks[i].module);
	xk_probe_programs_free(attachment);
	xk_probed_functions_free(attachment->functions, attachment->nr_functions);
	free_counters(attachment);
	kvfree(attachment);
	return stops;
}

struct xk_attachment *xk_attachment_find_owned(const struct file *caller, u32 id,
					       struct xk_error *error)
{
	struct xk_attachment *attachment;

	lockdep_assert_held(&xk_lock);
	list_for_each_entry(attachment, &xk_attachments, list) {
		if (attachment->id != id)
			continue;
		if (!attachment->owner || attachment->owner == caller)
			return attachment;
		return ERR_PTR(xk_refuse(error, -EPERM,
					 "probes %u belong to process %d: end that process", id,
					 attachment->owner_pid));
	}
	return ERR_PTR(xk_refuse(error, -ENOENT, "no probes have the number %u", id));
}

int xk_probe_detach(const struct file *caller, struct xk_probe_detach *request,
		    struct xk_error *error)
{
	struct xk_attachment *attachment;
	int ret = 0;

	request->stops = 0;
	mutex_lock(&xk_lock);
	attachment = xk_attachment_find_owned(caller, request->id, error);
	if (IS_ERR(attachment))
		ret = PTR_ERR(attachment);
	else
		request->stops = xk_attachment_destroy(attachment);
	mutex_unlock(&xk_lock);
	/* The original text is back then, unless someone else has a probe on it. */
	xk_retired_flush();
	return ret;
}

static void destroy_owned(const struct file *owner)
{
	struct xk_attachment *attachment, *next;

	mutex_lock(&xk_lock);
	list_for_each_entry_safe(attachment, next, &xk_attachments, list)
		if (attachment->owner == owner)
			xk_attachment_destroy(attachment);
	mutex_unlock(&xk_lock);
}

void xk_probes_release(const struct file *caller)
{
	destroy_owned(caller);
}

void xk_probes_exit(void)
{
	/* Those that are kept. */
	destroy_owned(NULL);
	xk_traced_exit();
	xk_allowed_exit();
	xk_retired_exit();
	xk_slots_exit();
}
