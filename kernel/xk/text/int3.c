// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's table of breakpoints. While text changes, any CPU may hit a breakpoint. The code
 * that handles it must not hit one itself, and must not be traced: a tracer, a tracepoint or a
 * program may execute the code that changes. Kprobes and die notifiers can be traced, so they
 * cannot handle these breakpoints.
 *
 * The kernel has the same problem when it changes its own text. On each breakpoint it first
 * searches a table, in code that is neither traced nor probed (.noinstr.text). Only the holder of
 * text_mutex uses the table. xk.ko holds that lock and does what the kernel does: it writes the
 * entries, then sets the count of users to 1, and at the end waits until no CPU uses them.
 *
 * Linux 6.12: poke_int3_handler(), struct bp_patching_desc. 7.3: smp_text_poke_int3_handler(),
 * struct smp_text_poke_array; there the table may hold entries of changes that the kernel has
 * collected and not begun, which are put aside meanwhile.
 *
 * Neither is declared in a header. The kernel's symbols tell them apart, and xk_int3_init() tries
 * the table on a breakpoint of its own before anything relies on it.
 */
#include <linux/atomic.h>
#include <linux/compiler.h>
#include <linux/cpumask.h>
#include <linux/kdebug.h>
#include <linux/percpu.h>
#include <linux/sort.h>
#include <linux/string.h>

#include "text/int3.h"
#include "text/internal.h"

#define JMP32 0xe9
#define JMP32_LEN 5

/* What arch/x86/kernel/alternative.c of 7.3 has room for. */
#define NR_ENTRIES 256

/* Of Linux 6.12. */
struct pointer_table {
	struct xk_int3 *entries;
	int nr;
	atomic_t users;
};

/* Of Linux 7.3; the users are counted for each CPU. */
struct array_table {
	struct xk_int3 entries[NR_ENTRIES];
	int nr;
};

static struct pointer_table *pointers;
static struct array_table *array;
static atomic_t __percpu *users;
static unsigned long text_start;

/* What the kernel had collected, from insertion to removal. */
static struct array_table aside;

void xk_int3_fill(struct xk_int3 *entry, unsigned long address, unsigned long target)
{
	s64 distance = target - (address + JMP32_LEN);

	/* All text of the kernel and of modules lies within 2 GiB. */
	WARN_ON_ONCE(distance != (s32)distance);
	*entry = (struct xk_int3){
		.from = address - text_start,
		.distance = distance,
		.len = JMP32_LEN,
		.opcode = JMP32,
	};
}

static int by_address(const void *left, const void *right)
{
	s32 a = ((const struct xk_int3 *)left)->from, b = ((const struct xk_int3 *)right)->from;

	return a < b ? -1 : a > b;
}

static void count_users(int nr)
{
	unsigned int cpu;

	if (pointers)
		return atomic_set_release(&pointers->users, nr);
	for_each_possible_cpu(cpu)
		atomic_set_release(per_cpu_ptr(users, cpu), nr);
}

static void wait_for(atomic_t *count)
{
	if (!atomic_dec_and_test(count))
		atomic_cond_read_acquire(count, !VAL);
}

void xk_int3_insert(struct xk_int3 *entries, unsigned int nr)
{
	sort(entries, nr, sizeof(*entries), by_address, NULL);
	if (pointers) {
		pointers->entries = entries;
		pointers->nr = nr;
	} else {
		memcpy(&aside, array, sizeof(aside));
		memcpy(array->entries, entries, nr * sizeof(*entries));
		array->nr = nr;
	}
	/* The entries are complete before a CPU uses them. */
	count_users(1);
	/* Pairs with the barrier in the kernel's handler: no breakpoint is written before. */
	smp_wmb();
}

void xk_int3_remove(void)
{
	unsigned int cpu;

	if (pointers)
		return wait_for(&pointers->users);
	for_each_possible_cpu(cpu)
		wait_for(per_cpu_ptr(users, cpu));
	memcpy(array, &aside, sizeof(aside));
}

unsigned int xk_int3_capacity(void)
{
	return pointers ? UINT_MAX : NR_ENTRIES;
}

/* If the table does not work, the breakpoint of the trial arrives here. */
static int skip_trial(struct notifier_block *block, unsigned long event, void *data)
{
	const struct die_args *args = data;
	unsigned long after = (unsigned long)xk_int3_trial_at + 1;

	return event == DIE_INT3 && args->regs->ip == after ? NOTIFY_STOP : NOTIFY_DONE;
}

static bool try_table(void)
{
	static struct notifier_block block = { .notifier_call = skip_trial, .priority = INT_MAX };
	unsigned long target = (unsigned long)xk_int3_trial_target;
	struct xk_int3 entries[2];
	int by;

	/* objtool takes the sum of an address of code and a number for another address of code. */
	OPTIMIZER_HIDE_VAR(target);
	if (register_die_notifier(&block))
		return false;
	/* Two, so that the kernel looks for the one. */
	xk_int3_fill(&entries[0], (unsigned long)xk_int3_trial_at, target);
	xk_int3_fill(&entries[1], text_start, text_start);
	xk_text_lock();
	xk_int3_insert(entries, ARRAY_SIZE(entries));
	by = xk_int3_trial();
	xk_int3_remove();
	xk_text_unlock();
	unregister_die_notifier(&block);
	return by == XK_INT3_BY_TABLE;
}

const char *xk_int3_init(void)
{
	text_start = xk_internal_find("_stext");
	pointers = (struct pointer_table *)xk_internal_find("bp_desc");
	array = (struct array_table *)xk_internal_find("text_poke_array");
	users = (atomic_t __percpu *)xk_internal_find("text_poke_array_refs");
	if (!text_start)
		return "_stext";
	if (!pointers && !(array && users))
		return "bp_desc";
	return try_table() ? NULL : "a table of breakpoints that works as in Linux 6.12 or 7.3";
}
