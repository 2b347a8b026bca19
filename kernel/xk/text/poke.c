// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of text while the machine is stopped. All threads are switched out and no interrupt is
 * being handled. But an NMI may execute any text at any time, on the waiting CPUs and on the
 * writing one, and the writing one calls functions of the kernel. So a change has three steps: a
 * breakpoint replaces the first byte; the other bytes are written; the first byte is written.
 * Between two steps, each other CPU confirms that it has left any NMI that began before. A CPU that
 * hits the breakpoint continues at the address that the change contains (int3.c). Every CPU
 * serialises after every step. If there are more changes than int3.c takes, the rest follows in
 * another round.
 *
 * If the changes belong to a transition (backend/patch), a CPU switches before the last step,
 * outside of NMIs. Until then an NMI on it hits breakpoints only, and continues in copies of
 * the previous instructions. After that it continues in copies of the new ones. So an NMI sees one
 * version.
 */
#include <linux/delay.h>
#include <linux/minmax.h>
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

/* The steps of a round. */
enum step {
	STEP_BREAKPOINT,
	STEP_REST,
	STEP_FIRST,
	STEPS,
};

struct xk_pokes *xk_pokes_create(unsigned int capacity)
{
	struct xk_pokes *pokes;
	size_t size;

	/* The entries lie after the changes. */
	size = ALIGN(struct_size(pokes, at, capacity), __alignof__(struct xk_int3));
	pokes = kvzalloc(size_add(size, array_size(capacity, sizeof(struct xk_int3))), GFP_KERNEL);
	if (!pokes)
		return NULL;
	pokes->entries = (void *)pokes + size;
	/* The other members are counted as they are filled in. */
	pokes->nr = capacity;
	return pokes;
}

/*
 * Switches this CPU, which is not in an NMI, when all breakpoints are in place. One write does it
 * for handlers and for copies. When the breakpoints are gone, the lowest byte is 0 again.
 */
static __always_inline void go_over(const struct xk_pokes *pokes, enum step step)
{
	if (!pokes->epoch)
		return;
	if (step == STEP_REST)
		this_cpu_write(xk_epoch, pokes->epoch + XK_EPOCH_SWITCHED);
	else if (step == STEP_FIRST)
		this_cpu_write(xk_epoch, pokes->epoch);
}

/* Returns when every other CPU has left all NMIs that began before. */
static void end_step(struct xk_pokes *pokes, enum step step)
{
	sync_core();
	go_over(pokes, step);
	atomic_set(&pokes->followed, 0);
	/* Pairs with the load in xk_pokes_follow(): the text is written. */
	smp_store_release(&pokes->steps, pokes->steps + 1);
	while (atomic_read(&pokes->followed) < num_online_cpus() - 1)
		cpu_relax();
}

void notrace xk_pokes_follow(struct xk_pokes *pokes, unsigned int *seen)
{
	/* Pairs with the store in end_step(). */
	unsigned int steps = smp_load_acquire(&pokes->steps);

	if (steps == *seen)
		return;
	*seen = steps;
	sync_core();
	go_over(pokes, (steps - 1) % STEPS);
	atomic_inc(&pokes->followed);
}

static void make_some(struct xk_pokes *pokes, const struct xk_poke *at, unsigned int nr)
{
	static const u8 int3 = INT3;
	unsigned int i;

	for (i = 0; i < nr; i++)
		xk_int3_fill(&pokes->entries[i], at[i].address,
			     pokes->epoch ? at[i].choice : at[i].meanwhile);
	xk_int3_insert(pokes->entries, nr);
	for (i = 0; i < nr; i++)
		xk_text_write(at[i].address, &int3, 1);
	end_step(pokes, STEP_BREAKPOINT);
	for (i = 0; i < nr; i++)
		xk_text_write(at[i].address + 1, at[i].bytes + 1, at[i].len - 1);
	end_step(pokes, STEP_REST);
	for (i = 0; i < nr; i++)
		xk_text_write(at[i].address, at[i].bytes, 1);
	end_step(pokes, STEP_FIRST);
	xk_int3_remove();
}

void xk_pokes_make(struct xk_pokes *pokes)
{
	unsigned int nr, made;

	/* In a second round, NMIs would see the new version in part. */
	WARN_ON_ONCE(pokes->epoch && pokes->nr > xk_int3_capacity());
	for (made = 0; made < pokes->nr; made += nr) {
		nr = min(pokes->nr - made, xk_int3_capacity());
		make_some(pokes, pokes->at + made, nr);
	}
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
	stop->pokes->steps = 0;
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
