// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of text while the machine is stopped. All threads are switched out and no interrupt is
 * being handled. But an NMI may execute any text at any time, on the waiting CPUs and on the
 * writing one. So a change has three steps: a breakpoint replaces the first byte; the other bytes
 * are written; the first byte is written. Between two steps, each other CPU confirms that it has
 * left any NMI that began before. A CPU that hits the breakpoint continues at the address that the
 * change contains. Every CPU serialises after every step.
 *
 * If the changes belong to a transition (backend/patch), a CPU records the epoch before the last
 * step, outside of NMIs. Until then an NMI on it hits breakpoints only, and continues in copies of
 * the previous instructions. After that it continues in copies of the new ones. So an NMI sees one
 * version.
 */
#include <linux/delay.h>
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <asm/sync_core.h>

#include "base/lock.h"
#include "text/internal.h"
#include "text/poke.h"
#include "text/stop_budget.h"

#define INT3 0xcc

DEFINE_PER_CPU(u64, xk_epoch);

/* Interval of attempts while the kernel makes large pages of module text. */
#define BUSY_INTERVAL_MS 1

enum {
	PHASE_BREAKPOINT = 1,
	PHASE_REST,
	PHASE_FIRST,
};

/* The changes under way, for the breakpoint handler. */
static struct xk_pokes *current_pokes;

struct xk_pokes *xk_pokes_create(unsigned int capacity)
{
	struct xk_pokes *pokes = kvzalloc(struct_size(pokes, at, capacity), GFP_KERNEL);

	/* The other members are counted as they are filled in. */
	if (pokes)
		pokes->nr = capacity;
	return pokes;
}

/* Records the epoch on this CPU, which is not in an NMI. All breakpoints are in place. */
static __always_inline void go_over(const struct xk_pokes *pokes, unsigned int phase)
{
	if (phase == PHASE_REST && pokes->epoch)
		this_cpu_write(xk_epoch, pokes->epoch);
}

/* Returns when every other CPU has left all NMIs that began before. */
static void enter_phase(struct xk_pokes *pokes, unsigned int phase)
{
	sync_core();
	go_over(pokes, phase);
	atomic_set(&pokes->followed, 0);
	/* Pairs with the load in xk_pokes_follow(): the text is written. */
	smp_store_release(&pokes->phase, phase);
	while (atomic_read(&pokes->followed) < num_online_cpus() - 1)
		cpu_relax();
}

void notrace xk_pokes_follow(struct xk_pokes *pokes, unsigned int *seen)
{
	/* Pairs with the store in enter_phase(). */
	unsigned int phase = smp_load_acquire(&pokes->phase);

	if (phase == *seen)
		return;
	*seen = phase;
	sync_core();
	go_over(pokes, phase);
	atomic_inc(&pokes->followed);
}

void xk_pokes_make(struct xk_pokes *pokes)
{
	static const u8 int3 = INT3;
	unsigned int i;

	if (!pokes->nr)
		return;
	WRITE_ONCE(current_pokes, pokes);
	for (i = 0; i < pokes->nr; i++)
		xk_text_write(pokes->at[i].address, &int3, 1);
	enter_phase(pokes, PHASE_BREAKPOINT);
	for (i = 0; i < pokes->nr; i++)
		xk_text_write(pokes->at[i].address + 1, pokes->at[i].bytes + 1,
			      pokes->at[i].len - 1);
	enter_phase(pokes, PHASE_REST);
	for (i = 0; i < pokes->nr; i++)
		xk_text_write(pokes->at[i].address, pokes->at[i].bytes, 1);
	enter_phase(pokes, PHASE_FIRST);
	WRITE_ONCE(current_pokes, NULL);
}

static int notrace met_breakpoint(struct notifier_block *block, unsigned long event, void *data)
{
	const struct xk_pokes *pokes = READ_ONCE(current_pokes);
	struct die_args *args = data;
	unsigned int i;

	if (event != DIE_INT3 || !pokes)
		return NOTIFY_DONE;
	for (i = 0; i < pokes->nr; i++) {
		if (pokes->at[i].address != args->regs->ip - 1)
			continue;
		args->regs->ip = this_cpu_read(xk_epoch) < pokes->epoch ?
				 pokes->at[i].before : pokes->at[i].meanwhile;
		return NOTIFY_STOP;
	}
	return NOTIFY_DONE;
}

NOKPROBE_SYMBOL(met_breakpoint);

static struct notifier_block breakpoints = {
	.notifier_call = met_breakpoint,
	.priority = INT_MAX,
};

int xk_poke_init(void)
{
	return register_die_notifier(&breakpoints);
}

void xk_poke_exit(void)
{
	unregister_die_notifier(&breakpoints);
}

struct stop {
	struct xk_pokes *pokes;
	bool (*may)(void *data);
	void *data;
	atomic_t arrived;
	bool busy;		/* text cannot be written now */
	bool made;
	u64 took;		/* nanoseconds until the other CPUs may continue */
	bool over;
};

/* Runs on every CPU, with interrupts disabled. */
static int poke_on_each_cpu(void *data)
{
	struct stop *stop = data;
	unsigned int seen = 0;

	if (atomic_inc_return(&stop->arrived) == 1) {
		u64 began = ktime_get_ns();

		stop->busy = !xk_text_is_free();
		stop->made = !stop->busy && (!stop->may || stop->may(stop->data));
		if (stop->made)
			xk_pokes_make(stop->pokes);
		stop->took = ktime_get_ns() - began;
		/* Pairs with the load below. */
		smp_store_release(&stop->over, true);
	} else {
		/* Pairs with the store above. */
		while (!smp_load_acquire(&stop->over)) {
			xk_pokes_follow(stop->pokes, &seen);
			cpu_relax();
		}
	}
	return 0;
}

static void stop_once(struct stop *stop, struct xk_stop_budget *budget)
{
	stop->pokes->phase = 0;
	xk_text_lock();
	if (xk_stop_machine_locked(poke_on_each_cpu, stop)) {
		stop->busy = false;
		stop->made = false;
	}
	xk_text_unlock();
	xk_stop_budget_add(budget, stop->took);
}

bool xk_poke_stopped_within(struct xk_pokes *pokes, bool (*may)(void *data), void *data,
			    struct xk_stop_budget *budget)
{
	lockdep_assert_held(&xk_lock);
	while (true) {
		struct stop stop = { .pokes = pokes, .may = may, .data = data };

		stop_once(&stop, budget);
		if (!stop.busy)
			return stop.made;
		msleep(BUSY_INTERVAL_MS);
	}
}

bool xk_poke_stopped(struct xk_pokes *pokes, bool (*may)(void *data), void *data)
{
	return xk_poke_stopped_within(pokes, may, data, NULL);
}
