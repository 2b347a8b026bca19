// SPDX-License-Identifier: GPL-2.0-only
/*
 * A running thread leaves a core that its policy has no more. sched_ext would let it run on if no
 * other thread wants the CPU, even without a time slice. So the kernel's stopper thread interrupts
 * it: sched_ext puts it back then, and asks where to place it.
 */
#include <linux/cpu.h>
#include <linux/irq_work.h>
#include <linux/percpu.h>
#include <linux/stop_machine.h>

#include "ext/kernel.h"
#include "model/cpus.h"
#include "model/thread.h"
#include "policy/cpus.h"

struct displacement {
	struct irq_work start;	/* as the stopper cannot be woken with a run queue locked */
	struct cpu_stop_work work;
	bool pending;
};

static DEFINE_PER_CPU(struct displacement, displacements);

static int interrupted(void *data)
{
	this_cpu_write(displacements.pending, false);
	return 0;
}

/* On the CPU, with interrupts off: nothing of the scheduler runs here meanwhile. */
static void start(struct irq_work *work)
{
	struct displacement *own = container_of(work, struct displacement, start);
	struct xk_thread *thread = xk_thread_of(current);

	/* The pointer is NULL outside of the class. */
	if (own->pending || !thread || !thread->policy || !READ_ONCE(thread->enabled) ||
	    xk_is_home(thread, smp_processor_id()))
		return;
	own->pending = true;
	current->scx.slice = 0;
	xk_ext_interrupt(interrupted, &own->work);
}

void xk_displace(void)
{
	irq_work_queue(this_cpu_ptr(&displacements.start));
}

void xk_displace_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		init_irq_work(&per_cpu_ptr(&displacements, cpu)->start, start);
}

static int nothing(void *data)
{
	return 0;
}

/* The stopper threads do one thing after the other. */
void xk_displace_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		irq_work_sync(&per_cpu_ptr(&displacements, cpu)->start);
	cpus_read_lock();
	xk_ext_stop(nothing, NULL);
	cpus_read_unlock();
}
