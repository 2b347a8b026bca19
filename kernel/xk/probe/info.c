// SPDX-License-Identifier: GPL-2.0-only
/* Attachments and their places, for user space. */
#include <linux/bpf.h>
#include <linux/percpu.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#include "base/lock.h"
#include "probe/attach.h"
#include "probe/point.h"

static u64 sum(u64 __percpu *counter)
{
	u64 total = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		total += READ_ONCE(*per_cpu_ptr(counter, cpu));
	return total;
}

static u64 memory_of(const struct xk_point *point)
{
	return point->in_code ? XK_SLOT_LEN : 0;
}

static void describe(const struct xk_attachment *attachment, struct xk_probe_info *info)
{
	const struct bpf_prog *first = attachment->programs->program;
	u32 i;

	info->id = attachment->id;
	strscpy(info->name, attachment->name);
	info->program = first ? first->aux->id : 0;
	info->nr_programs = attachment->nr_programs;
	info->nr_places = attachment->nr;
	info->owner_pid = attachment->owner_pid;
	info->skipped = sum(attachment->skipped);
	info->age_ns = ktime_get_boottime_ns() - attachment->attached_ns;
	info->lease_ns = xk_deadline_left(&attachment->lease);
	info->flags = attachment->owner ? 0 : XK_PROBE_KEPT;
	for (i = 0; i < attachment->nr; i++) {
		const struct xk_hook *hook = &attachment->hooks[i];

		info->hits += sum(hook->hits);
		if (!hook->point)
			continue;
		info->nr_jumps += hook->point->in_code;
		info->memory += memory_of(hook->point);
	}
}

int xk_probe_info(struct xk_probe_info *info)
{
	const struct xk_attachment *attachment;
	u32 index = info->index, at = 0;
	int ret = -ENOENT;

	memset(info, 0, sizeof(*info));
	info->index = index;
	mutex_lock(&xk_lock);
	list_for_each_entry(attachment, &xk_attachments, list) {
		if (at++ != index)
			continue;
		describe(attachment, info);
		ret = 0;
		break;
	}
	mutex_unlock(&xk_lock);
	return ret;
}

static void describe_waiting(const struct xk_hook *hook, struct xk_probe_place_info *info)
{
	info->flags = XK_PROBE_WAITING;
	if (hook->why_waiting)
		strscpy(info->note, hook->why_waiting);
	else if (hook->function)
		strscpy(info->note, hook->function->reason);
}

static void describe_place(const struct xk_hook *hook, struct xk_probe_place_info *info)
{
	const struct xk_point *point = hook->point;

	memset(info, 0, sizeof(*info));
	info->requested = hook->requested;
	info->hits = sum(hook->hits);
	info->missed = hook->missed;
	if (!point) {
		describe_waiting(hook, info);
		return;
	}
	info->address = point->address;
	info->missed += xk_point_missed(point);
	if (point->in_code)
		info->flags = XK_PROBE_JUMP;
	else if (point->is_traced)
		info->flags = XK_PROBE_TRACER;
	if (hook->why_held)
		snprintf(info->note, sizeof(info->note), "it holds its module: %s", hook->why_held);
	else if (!point->in_code && point->why_no_jump)
		strscpy(info->note, point->why_no_jump);
}

int xk_probe_places(struct xk_probe_places *request, struct xk_probe_place_info *places)
{
	const struct xk_attachment *attachment;
	u32 room = request->nr, i;
	int ret = -ENOENT;

	request->nr = 0;
	mutex_lock(&xk_lock);
	list_for_each_entry(attachment, &xk_attachments, list) {
		if (attachment->id != request->id)
			continue;
		for (i = request->first; i < attachment->nr && request->nr < room; i++)
			describe_place(&attachment->hooks[i], &places[request->nr++]);
		ret = 0;
		break;
	}
	mutex_unlock(&xk_lock);
	return ret;
}
