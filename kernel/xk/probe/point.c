// SPDX-License-Identifier: GPL-2.0-only
/* Points, found by their addresses. */
#include <linux/lockdep.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "base/lock.h"
#include "probe/jump.h"
#include "probe/point.h"
#include "probe/run.h"

static DEFINE_XARRAY(points);

struct xk_point *xk_point_find(unsigned long address)
{
	lockdep_assert_held(&xk_lock);
	return xa_load(&points, address);
}

static const char *verify(struct xk_plan *plan, struct xk_point *point)
{
	const char *why = xk_function_read(&plan->function, point->address);

	if (!why && !xk_function_begins(&plan->function, point->address))
		why = "no instruction begins there";
	if (!why)
		point->no_kprobe = xk_function_is_long_call(&plan->function, point->address);
	if (!why)
		why = xk_function_module(&plan->function, plan->coming, &point->module);
	if (!why)
		why = xk_allowed_function(&plan->allowed, &plan->function, point->module);
	return why;
}

struct xk_point *xk_point_create(struct xk_plan *plan, unsigned long address, const char **why)
{
	struct xk_point *point = kzalloc(sizeof(*point), GFP_KERNEL);

	BUILD_BUG_ON(offsetof(struct xk_point, address) != XK_POINT_ADDRESS);
	*why = "no memory";
	if (!point)
		return NULL;
	point->address = address;
	point->all.hits = &xk_probe_uncounted;
	point->all.func = xk_probe_run_all;
	point->act = &point->all;
	*why = verify(plan, point);
	if (!*why && xa_is_err(xa_store(&points, address, point, GFP_KERNEL)))
		*why = "no memory";
	if (!*why)
		return point;
	xk_point_free(point);
	return NULL;
}

void xk_point_forget(const struct xk_point *point)
{
	lockdep_assert_held(&xk_lock);
	if (xa_load(&points, point->address) == point)
		xa_erase(&points, point->address);
}

void xk_point_free(struct xk_point *point)
{
	kfree(point);
}

int xk_point_trap(struct xk_point *point)
{
	int ret;

	if (point->no_kprobe)
		return -EOPNOTSUPP;
	point->kprobe.addr = (kprobe_opcode_t *)point->address;
	point->kprobe.pre_handler = xk_probe_hit;
	point->kprobe.flags = KPROBE_FLAG_DISABLED;
	ret = register_kprobe(&point->kprobe);
	point->has_kprobe = !ret;
	/* kprobes move a probe at an endbr64 to the instruction after it. */
	if (!ret && (unsigned long)point->kprobe.addr != point->address) {
		unregister_kprobe(&point->kprobe);
		point->has_kprobe = false;
		return -EADDRNOTAVAIL;
	}
	return ret;
}

int xk_point_start(struct xk_point *point)
{
	int ret;

	if (!point->has_kprobe || !(point->kprobe.flags & KPROBE_FLAG_DISABLED))
		return 0;
	ret = enable_kprobe(&point->kprobe);
	if (ret) {
		unregister_kprobe(&point->kprobe);
		point->has_kprobe = false;
	}
	return ret;
}

/* After the hooks of the point have changed. */
static void choose_act(struct xk_point *point)
{
	const struct xk_hook *first = point->first;
	bool alone = first && !first->next && first->program->is_plain;

	/* Pairs with the load in act(). */
	smp_store_release(&point->act, alone ? &first->alone : &point->all);
}

void xk_hook_add(struct xk_hook *hook)
{
	struct xk_hook **at = &hook->point->first;

	lockdep_assert_held(&xk_lock);
	while (*at)
		at = &(*at)->next;
	/* It may have been at another point before. */
	hook->next = NULL;
	/* Pairs with the load in xk_probe_run_all(). */
	smp_store_release(at, hook);
	choose_act(hook->point);
}

void xk_hook_remove(const struct xk_hook *hook)
{
	struct xk_hook **at = &hook->point->first;

	lockdep_assert_held(&xk_lock);
	while (*at && *at != hook)
		at = &(*at)->next;
	if (*at)
		WRITE_ONCE(*at, hook->next);
	choose_act(hook->point);
}

u64 xk_point_missed(const struct xk_point *point)
{
	return point->has_kprobe ? point->kprobe.nmissed : 0;
}
