// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of the CPUs of policies. Callbacks that have seen the old set end before threads are
 * moved, so that none is left elsewhere.
 */
#include <linux/cpumask.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/smp.h>

#include "event/call.h"
#include "event/record.h"
#include "policy/cpus.h"
#include "policy/list.h"

static void settle(struct xk_sched_policy *policy, int gone)
{
	struct xk_thread *thread;

	raw_spin_lock_irq(&policy->lock);
	list_for_each_entry(thread, &policy->threads, of_policy)
		while (!xk_call_move(thread, gone))
			cpu_relax();
	raw_spin_unlock_irq(&policy->lock);
}

void xk_cpus_settle(struct xk_sched_policy *policy)
{
	settle(policy, -1);
}

/* `online`: the CPUs that will stay. `gone`: one that will not, or -1. */
static void update(struct xk_sched_policy *policy, struct cpumask *online, int gone)
{
	bool wants_all = cpumask_equal(policy->wanted, cpu_possible_mask);

	policy->stranded = !cpumask_intersects(policy->wanted, online);
	if (!policy->stranded)
		cpumask_and(online, online, policy->wanted);
	raw_spin_lock_irq(&policy->lock);
	xk_record_cpus(policy, online, !wants_all && !policy->stranded);
	raw_spin_unlock_irq(&policy->lock);
	/* Callbacks run with interrupts off. */
	kick_all_cpus_sync();
	/*
	 * The kernel takes threads from the run queue of a CPU that goes offline, but ours may wait
	 * for this CPU in the run queue of another.
	 */
	settle(policy, gone);
}

/* The masks are large, and changes are rare: one for all, with the lock of the policies. */
static struct cpumask scratch;

void xk_cpus_change(struct xk_sched_policy *policy, const struct cpumask *wanted)
{
	cpumask_copy(policy->wanted, wanted);
	cpumask_copy(&scratch, cpu_online_mask);
	update(policy, &scratch, -1);
}

void xk_cpus_hotplug(int cpu, bool online)
{
	unsigned int id;

	for (id = 0; id < XK_MAX_POLICIES; id++) {
		if (!xk_policies[id])
			continue;
		cpumask_copy(&scratch, cpu_online_mask);
		if (online)
			cpumask_set_cpu(cpu, &scratch);
		else
			cpumask_clear_cpu(cpu, &scratch);
		update(xk_policies[id], &scratch, online ? -1 : cpu);
	}
}
