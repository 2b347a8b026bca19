// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where threads are, according to the kernel's own unwinder. In a stop, every CPU runs the stopper
 * thread, so all other threads are switched out and no interrupt is being handled. A stack that
 * cannot be read to its end counts as inside, as in arch_stack_walk_reliable()
 * (arch/x86/kernel/stacktrace.c).
 *
 * Most threads sleep. So xk.ko looks at them before the stop, too, while the machine runs. The
 * scheduler counts how often it switches a thread out (__schedule()). A thread that was outside and
 * has the same count in the stop has not run since, and is still outside. The stop looks only at
 * the other threads.
 */
#include <linux/kasan.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <asm/unwind.h>

#include "base/compat.h"
#include "transition/exiting.h"
#include "text/claim.h"
#include "text/internal.h"
#include "transition/stack.h"
#include "text/stop_budget.h"
#include "text/stub.h"
#include "model/tune.h"

/* Threads that may be created after the count. */
#define SLACK 128
/* Looks between two cond_resched(). */
#define BATCH 64

/* Reads the stack to its end even if the answer is known: the frames are for the report. */
bool xk_stack_look(struct task_struct *task, const struct xk_look *look,
		   struct xk_blocker *seen)
{
	struct xk_frame frame = {};
	struct unwind_state state;

	seen->nr = 0;
	seen->unreliable = true;
	seen->stands = false;
	for (unwind_start(&state, task, NULL, NULL); !unwind_done(&state) && !unwind_error(&state);
	     unwind_next_frame(&state)) {
		struct pt_regs *regs = unwind_get_entry_regs(&state, NULL);

		if (regs && user_mode(regs)) {
			seen->unreliable = false;
			return seen->stands;
		}
		/* The thread has called the handler from a stub: see xk_stub_call_handler. */
		if (regs && xk_is_stub(regs->orig_ax)) {
			frame.address = regs->orig_ax;
			frame.interrupted = false;
			frame.in_stub = true;
			seen->stands |= look->stands(&frame, look->data);
			frame.in_stub = false;
		}
		frame.calls_interrupted = frame.interrupted;
		frame.interrupted = regs;
		frame.address = unwind_get_return_address(&state);
		/* At a relay, the thread is on its way from another place to a slot. */
		if (!frame.address || (regs && xk_is_relay(frame.address)))
			return true;
		if (seen->nr < XK_STACK_DEPTH)
			seen->stack[seen->nr++] = frame.address;
		seen->stands |= look->stands(&frame, look->data);
	}
	seen->unreliable = unwind_error(&state);
	return seen->stands || seen->unreliable;
}

bool xk_stack_look_stopped(struct task_struct *task, const struct xk_look *look,
			   struct xk_blocker *seen)
{
	xk_stop_budget_read_stack();
	return xk_stack_look(task, look, seen);
}

bool xk_has_stack(const struct task_struct *task)
{
	return !READ_ONCE(task->on_cpu) && refcount_read(&task->stack_refcount);
}

bool xk_visit_threads(void (*visit)(struct task_struct *task, void *data), void *data)
{
	struct task_struct *process, *thread;

	for_each_process_thread(process, thread)
		visit(thread, data);
	return xk_visit_exiting(visit, data);
}

unsigned int xk_count_threads(void)
{
	struct task_struct *process, *thread;
	unsigned int nr = SLACK;

	rcu_read_lock();
	for_each_process_thread(process, thread)
		nr++;
	rcu_read_unlock();
	return nr;
}

static unsigned long switches_of(const struct task_struct *task)
{
	return READ_ONCE(task->nvcsw) + READ_ONCE(task->nivcsw);
}

static int by_task(const void *a, const void *b)
{
	const struct xk_outside_thread *left = a, *right = b;

	return left->task < right->task ? -1 : left->task > right->task;
}

static const struct xk_outside_thread *find(const struct xk_outside *outside,
					    const struct task_struct *task)
{
	unsigned int low = 0, high = outside ? outside->nr : 0;

	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (outside->at[middle].task == task)
			return &outside->at[middle];
		if (outside->at[middle].task < task)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

bool xk_is_outside(const struct xk_outside *outside, const struct task_struct *task)
{
	const struct xk_outside_thread *then = find(outside, task);

	return then && then->switches == switches_of(task);
}

/* All threads, with references, as far as there is room. */
static struct xk_outside *collect_threads(void)
{
	unsigned int capacity = xk_count_threads();
	struct task_struct *process, *thread;
	struct xk_outside *all;

	all = kvzalloc(struct_size(all, at, capacity), GFP_KERNEL);
	if (!all)
		return NULL;
	all->capacity = capacity;
	rcu_read_lock();
	for_each_process_thread(process, thread) {
		if (all->nr == all->capacity)
			break;
		get_task_struct(thread);
		all->at[all->nr++].task = thread;
	}
	rcu_read_unlock();
	return all;
}

enum whereabouts {
	INSIDE,
	OUTSIDE,
	RUNS,		/* now, or during the look */
};

/*
 * The caller reads the number of switches first. A thread that has run since, and is switched out,
 * has another number. So a thread that has the same number in a stop has this stack.
 *
 * The thread may begin to run while its stack is read. The result is then dropped (RUNS). The
 * unwinder checks every address before it follows it. KASAN must be disabled: a new function of
 * that thread poisons its redzones, and the unwinder may access one where registers of an interrupt
 * were saved a moment ago. It reads what it expects to change with READ_ONCE_NOCHECK(), but not
 * regs->cs. In a stop no stack changes, and KASAN stays enabled.
 */
static enum whereabouts look_running(struct task_struct *task, unsigned long switches,
				     const struct xk_look *look, struct xk_blocker *seen)
{
	bool inside;

	/*
	 * Pairs with the order of the scheduler's stores: the stack is not older than the number.
	 */
	smp_rmb();
	if (READ_ONCE(task->on_cpu) || !try_get_task_stack(task))
		return RUNS;
	kasan_disable_current();
	inside = xk_stack_look(task, look, seen);
	kasan_enable_current();
	xk_put_task_stack(task);
	/* Likewise: a thread that began to run meanwhile shows it. */
	smp_rmb();
	if (READ_ONCE(task->on_cpu) || switches_of(task) != switches)
		return RUNS;
	return inside ? INSIDE : OUTSIDE;
}

bool xk_stack_look_running(struct task_struct *task, const struct xk_look *look,
			   struct xk_blocker *seen)
{
	return look_running(task, switches_of(task), look, seen) == INSIDE;
}

enum xk_stack_read xk_stack_read_running(struct task_struct *task, const struct xk_look *look,
					 struct xk_blocker *seen)
{
	if (look_running(task, switches_of(task), look, seen) == RUNS)
		return XK_STACK_RUNS;
	return seen->unreliable ? XK_STACK_UNREADABLE : XK_STACK_READ;
}

static enum whereabouts look_at_listed(struct xk_outside_thread *at, const struct xk_look *look,
				       const struct xk_outside *before, struct xk_blocker *seen)
{
	at->switches = switches_of(at->task);
	if (xk_is_outside(before, at->task))
		return OUTSIDE;
	return look_running(at->task, at->switches, look, seen);
}

struct xk_outside *xk_look_at_all(const struct xk_look *look, struct xk_outside *before,
				  void (*inside)(struct task_struct *task,
						 const struct xk_blocker *seen, void *data),
				  void *data)
{
	struct xk_outside *all = collect_threads();
	unsigned int i, nr = 0;
	struct xk_blocker seen;

	for (i = 0; all && i < all->nr; i++) {
		enum whereabouts where = look_at_listed(&all->at[i], look, before, &seen);

		if (where == OUTSIDE) {
			all->at[nr++] = all->at[i];
		} else {
			if (where == INSIDE && inside)
				inside(all->at[i].task, &seen, data);
			put_task_struct(all->at[i].task);
		}
		if (i % BATCH == BATCH - 1)
			cond_resched();
	}
	xk_outside_free(before);
	if (!all)
		return NULL;
	all->nr = nr;
	sort(all->at, all->nr, sizeof(all->at[0]), by_task, NULL);
	return all;
}

void xk_outside_free(struct xk_outside *outside)
{
	unsigned int i;

	if (!outside)
		return;
	for (i = 0; i < outside->nr; i++)
		put_task_struct(outside->at[i].task);
	kvfree(outside);
}
