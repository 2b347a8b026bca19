// SPDX-License-Identifier: GPL-2.0-only
/*
 * Points at entries of functions. No jump may replace the bytes of the function tracer. A kprobe
 * there is called by the tracer, but each kprobe makes the tracer search all functions of the
 * kernel. So one handler is registered with the tracer for all points, and many points take one
 * search.
 *
 * Programs that call bpf_get_func_ip() need a kprobe: they find the function by the kprobe that
 * runs.
 */
#include <linux/ftrace.h>
#include <linux/hashtable.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "base/lock.h"
#include "probe/run.h"
#include "probe/traced.h"
#include "text/internal.h"

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_REGS

/* Read by the handler without locks. */
static DEFINE_HASHTABLE(points, 12);
static unsigned int nr_points;

static notrace const struct xk_point *find(unsigned long address)
{
	const struct xk_point *point;

	hash_for_each_possible_rcu_notrace(points, point, by_entry, address)
		if (point->address == address)
			return point;
	return NULL;
}

/* The tracer does not disable preemption. */
static void notrace on_entry(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			     struct ftrace_regs *fregs)
{
	struct pt_regs *regs = ftrace_get_regs(fregs);
	const struct xk_point *point;

	preempt_disable_notrace();
	point = find(ip);
	if (point && regs)
		xk_probe_run_at(point, regs);
	preempt_enable_notrace();
}

NOKPROBE_SYMBOL(find);
NOKPROBE_SYMBOL(on_entry);

/*
 * No RECURSION: the tracer would keep the handler from being called by itself, and might drop
 * executions. The handler does so, and counts them: it calls nothing that is traced but programs.
 * PERMANENT: kernel.ftrace_enabled cannot be set to 0 as long as this is registered.
 */
static struct ftrace_ops entries = {
	.func = on_entry,
	.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_PERMANENT,
};

static unsigned long ftrace_location_at;

bool xk_is_traced(unsigned long address)
{
	if (!ftrace_location_at)
		ftrace_location_at = xk_internal_find("ftrace_location");
	return ftrace_location_at && xk_far(address, 0, 0, 0, ftrace_location_at) == address;
}

static unsigned long *addresses_of(struct xk_point *const *some, unsigned int nr)
{
	unsigned long *addresses = kvmalloc_array(nr, sizeof(*addresses), GFP_KERNEL);
	unsigned int i;

	for (i = 0; addresses && i < nr; i++)
		addresses[i] = some[i]->address;
	return addresses;
}

static void forget(struct xk_point *const *some, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		hash_del_rcu(&some[i]->by_entry);
		some[i]->is_traced = false;
	}
	nr_points -= nr;
}

/*
 * An empty filter selects all functions, so it must not be registered. ftrace_free_filter() leaves
 * a pointer to what it frees, so it is called only at the end.
 */
static void clear_filter(void)
{
	ftrace_set_filter(&entries, NULL, 0, true);
}

void xk_traced_exit(void)
{
	ftrace_free_filter(&entries);
}

int xk_traced_add(struct xk_point *const *some, unsigned int nr)
{
	unsigned long *addresses;
	unsigned int i;
	int ret;

	lockdep_assert_held(&xk_lock);
	if (!nr)
		return 0;
	addresses = addresses_of(some, nr);
	if (!addresses)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		hash_add_rcu(points, &some[i]->by_entry, some[i]->address);
		some[i]->is_traced = true;
	}
	nr_points += nr;
	ret = ftrace_set_filter_ips(&entries, addresses, nr, 0, 0);
	if (!ret && nr_points == nr)
		ret = register_ftrace_function(&entries);
	if (ret)
		forget(some, nr);
	if (ret && !nr_points)
		clear_filter();
	kvfree(addresses);
	return ret;
}

void xk_traced_remove(struct xk_point *const *some, unsigned int nr)
{
	unsigned long *addresses;

	lockdep_assert_held(&xk_lock);
	if (!nr)
		return;
	forget(some, nr);
	if (!nr_points) {
		unregister_ftrace_function(&entries);
		clear_filter();
		return;
	}
	/* Without memory, the tracer goes on to call the handler, which finds no point. */
	addresses = addresses_of(some, nr);
	if (addresses)
		ftrace_set_filter_ips(&entries, addresses, nr, 1, 0);
	kvfree(addresses);
}

#else

void xk_traced_exit(void)
{
}

bool xk_is_traced(unsigned long address)
{
	return false;
}

int xk_traced_add(struct xk_point *const *some, unsigned int nr)
{
	return nr ? -EOPNOTSUPP : 0;
}

void xk_traced_remove(struct xk_point *const *some, unsigned int nr)
{
}

#endif /* CONFIG_DYNAMIC_FTRACE_WITH_REGS */
