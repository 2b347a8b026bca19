// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which threads are inside: the kernel's own unwinder walks their stacks while
 * the machine is stopped. Every CPU is in the stopper's thread then, so all
 * other threads are switched out, and no interrupt is under way. A stack that
 * cannot be walked to its end counts as inside, as arch_stack_walk_reliable()
 * would have it (arch/x86/kernel/stacktrace.c).
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <asm/unwind.h>

#include "internal.h"
#include "scan.h"
#include "xk.h"

/* Threads that may have been created since they were counted. */
#define SLACK 128

static int by_start(const void *a, const void *b)
{
	const struct xk_addresses *left = a, *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

static void merge(struct xk_range_set *set)
{
	unsigned int i, nr = 0;

	sort(set->at, set->nr, sizeof(set->at[0]), by_start, NULL);
	for (i = 0; i < set->nr; i++) {
		if (nr && set->at[i].start <= set->at[nr - 1].end)
			set->at[nr - 1].end = max(set->at[nr - 1].end, set->at[i].end);
		else
			set->at[nr++] = set->at[i];
	}
	set->nr = nr;
}

static void add(struct xk_range_set *set, unsigned long start, unsigned long end)
{
	set->nr++;
	set->at[set->nr - 1].start = start;
	set->at[set->nr - 1].end = end;
}

/* Scopes whose code is there. */
static void add_scopes(struct xk_range_set *set, const struct xk_tune *tune)
{
	unsigned int k, r;

	for (k = 0; k < tune->nr_scopes; k++) {
		const struct xk_live_scope *scope = &tune->scopes[k];
		unsigned long function = scope->place.function;

		if (scope->phase != XK_PHASE_READY)
			continue;
		for (r = 0; r < scope->nr_ranges; r++)
			add(set, function + scope->ranges[r].start,
			    function + scope->ranges[r].end);
	}
}

/*
 * Instructions that hold a value: from the first of a site to behind the last. And where
 * a probe that is being registered may have copied one, and cannot be found yet.
 */
static void add_patched(struct xk_range_set *set, const struct xk_tune *tune)
{
	unsigned int k;

	if (tune->patches)
		add(set, xk_registering_start(), xk_registering_end());
	for (k = 0; k < tune->nr_sites; k++) {
		const struct xk_live_site *site = &tune->sites[k];

		if (site->patch)
			add(set, site->address - site->reach, site->address + site->insn_len);
	}
}

static unsigned int count_ranges(const struct xk_tune *tune)
{
	unsigned int k, nr = tune->patches ? 1 + tune->nr_sites : 0;

	for (k = 0; k < tune->nr_scopes; k++)
		nr += tune->scopes[k].nr_ranges;
	return nr;
}

/* Without `scopes`, only of instructions that must change as one. */
struct xk_range_set *xk_range_set_create(struct xk_tune *const *tunes, unsigned int nr,
					 bool scopes)
{
	struct xk_range_set *set;
	unsigned int i, capacity = 0;

	for (i = 0; i < nr; i++)
		capacity += count_ranges(tunes[i]);
	set = kvzalloc(struct_size(set, at, capacity), GFP_KERNEL);
	if (!set)
		return NULL;
	for (i = 0; i < nr; i++) {
		if (scopes)
			add_scopes(set, tunes[i]);
		add_patched(set, tunes[i]);
	}
	merge(set);
	return set;
}

static bool contains(const struct xk_range_set *set, unsigned long address)
{
	unsigned int low = 0, high = set->nr;

	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (address < set->at[middle].start)
			high = middle;
		else if (address >= set->at[middle].end)
			low = middle + 1;
		else
			return true;
	}
	return false;
}

struct frame {
	unsigned long address;		/* where it goes on */
	bool interrupted;		/* not in a call */
	bool calls_interrupted;		/* what it called was interrupted */
};

typedef bool (*stands_fn)(const struct frame *frame, const void *data);

/*
 * Whether the instruction at which a frame stands is in a range: where it was
 * interrupted, or the call that has not returned, which lies before the address
 * to which it will. A frame that was interrupted may have returned already, but
 * for a jump: return thunks have no frame of their own.
 */
static bool stands_in(const struct frame *frame, const void *ranges)
{
	if (frame->interrupted)
		return contains(ranges, frame->address);
	return contains(ranges, frame->address - 1) ||
	       (frame->calls_interrupted && contains(ranges, frame->address));
}

/*
 * Walks the stack to its end, also when the answer is known: the frames are for
 * the report.
 */
static bool walk(struct task_struct *task, stands_fn stands, const void *data,
		 struct xk_blocker *seen)
{
	struct frame frame = {};
	bool inside = false;
	struct unwind_state state;

	seen->nr = 0;
	seen->unreliable = true;
	for (unwind_start(&state, task, NULL, NULL); !unwind_done(&state) && !unwind_error(&state);
	     unwind_next_frame(&state)) {
		struct pt_regs *regs = unwind_get_entry_regs(&state, NULL);

		if (regs && user_mode(regs)) {
			seen->unreliable = false;
			return inside;
		}
		frame.calls_interrupted = frame.interrupted;
		frame.interrupted = regs;
		frame.address = unwind_get_return_address(&state);
		if (!frame.address)
			return true;
		if (seen->nr < XK_STACK_DEPTH)
			seen->stack[seen->nr++] = frame.address;
		inside |= stands(&frame, data);
	}
	seen->unreliable = unwind_error(&state);
	return inside || seen->unreliable;
}

/*
 * A thread that runs is a stopper: nothing else runs now. One without a stack
 * has exited.
 */
static bool has_stack(const struct task_struct *task)
{
	return !task->on_cpu && refcount_read(&task->stack_refcount);
}

static void look_at(struct task_struct *task, struct xk_scan *scan)
{
	struct xk_settling *found = scan->found;
	struct xk_blocker *seen = &scan->blockers[scan->nr_blockers];
	struct xk_blocker unreported;

	if (!has_stack(task))
		return;
	if (scan->nr_blockers == XK_MAX_BLOCKERS)
		seen = &unreported;
	if (!walk(task, stands_in, scan->ranges, seen))
		return;
	if (seen != &unreported) {
		seen->pid = task_pid_nr(task);
		memcpy(seen->comm, task->comm, sizeof(seen->comm));
		scan->nr_blockers++;
	}
	if (found->nr == found->capacity) {
		scan->overflow = true;
		return;
	}
	get_task_struct(task);
	found->tasks[found->nr++] = task;
}

static int by_address(const void *a, const void *b)
{
	const struct task_struct *left = *(struct task_struct *const *)a;
	const struct task_struct *right = *(struct task_struct *const *)b;

	return left < right ? -1 : left > right;
}

static void start(struct xk_scan *scan)
{
	scan->nr_blockers = 0;
	scan->overflow = false;
}

/* Every thread but those of `except`, which may be NULL. */
void xk_scan_all(struct xk_scan *scan, const struct xk_settling *except)
{
	struct task_struct *process, *thread;

	start(scan);
	for_each_process_thread(process, thread)
		if (!except || !xk_settling_has(except, thread))
			look_at(thread, scan);
	sort(scan->found->tasks, scan->found->nr, sizeof(scan->found->tasks[0]), by_address,
	     NULL);
}

struct visitor {
	void (*visit)(unsigned long address, void *data);
	void *data;
};

static bool visit_frame(const struct frame *frame, const void *data)
{
	const struct visitor *visitor = data;

	visitor->visit(frame->address, visitor->data);
	return false;
}

/* Where every thread stands. False: one has a stack that cannot be read to its end. */
bool xk_scan_addresses(void (*visit)(unsigned long address, void *data), void *data)
{
	const struct visitor visitor = { .visit = visit, .data = data };
	struct task_struct *process, *thread;
	struct xk_blocker seen;
	bool readable = true;

	for_each_process_thread(process, thread)
		if (has_stack(thread) && walk(thread, visit_frame, &visitor, &seen))
			readable = false;
	return readable;
}

/* Those that are still inside. */
void xk_scan_again(struct xk_scan *scan, const struct xk_settling *before)
{
	unsigned int i;

	start(scan);
	for (i = 0; i < before->nr; i++)
		look_at(before->tasks[i], scan);
}

/* Handlers ask it, too. */
bool notrace xk_settling_has(const struct xk_settling *settling, const struct task_struct *task)
{
	unsigned int low = 0, high = settling->nr;

	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (settling->tasks[middle] == task)
			return true;
		if (settling->tasks[middle] < task)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

NOKPROBE_SYMBOL(xk_settling_has);

/* With room for all threads that there are. */
struct xk_settling *xk_settling_create(void)
{
	struct task_struct *process, *thread;
	struct xk_settling *settling;
	unsigned int nr = SLACK;

	rcu_read_lock();
	for_each_process_thread(process, thread)
		nr++;
	rcu_read_unlock();
	settling = kvzalloc(struct_size(settling, tasks, nr), GFP_KERNEL);
	if (settling)
		settling->capacity = nr;
	return settling;
}

/* Handlers may be looking at it. */
void xk_settling_free(const struct xk_settling *settling)
{
	struct xk_settling *mine = (struct xk_settling *)settling;
	unsigned int i;

	if (!settling)
		return;
	for (i = 0; i < settling->nr; i++)
		put_task_struct(settling->tasks[i]);
	kvfree_rcu(mine, rcu);
}
