// SPDX-License-Identifier: GPL-2.0-only
/*
 * The entry points and helpers of sched_ext: their names, their types with hidden arguments, and
 * how they are called. Nothing else in the module knows them.
 *
 * None is exported. With indirect branch tracking, the kernel seals functions that it never calls
 * through a pointer, so all are called by static calls, which are direct. The types are those of
 * Linux 7.3: each helper takes a hidden last argument, the program that calls it. It reads one
 * field of it, the map of the program's scheduler. If a program has none, it is taken for one of
 * the only scheduler that is registered, and ours is: our callbacks run only then.
 *
 * Linux 6.12 has no sub-schedulers. Its helpers do not take the last argument, so they leave the
 * register alone in which it is, and the one that queues a task has another name.
 */
#include <linux/bpf.h>
#include <linux/cpumask.h>
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/smp.h>
#include <linux/static_call.h>
#include <linux/stop_machine.h>
#include <linux/string.h>

#include "base/error.h"
#include "ext/kernel.h"
#include "ext/ops.h"
#include "text/symbol.h"

#if defined(CONFIG_CFI_CLANG) || defined(CONFIG_CFI)
#error "xk_sched.ko does not support CONFIG_CFI: sched_ext calls programs only"
#endif

typedef unsigned long lookup_fn(const char *name);
typedef int reg_fn(void *kdata, struct bpf_link *link);
typedef void unreg_fn(void *kdata, struct bpf_link *link);
/* 7.3 says whether the scheduler is about to be ejected. */
typedef void insert_fn(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags,
		       const struct bpf_prog_aux *aux);
typedef void kick_fn(s32 cpu, u64 flags, const struct bpf_prog_aux *aux);
typedef s32 select_fn(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle,
		      const struct bpf_prog_aux *aux);

typedef bool take_idle_fn(s32 cpu, const struct bpf_prog_aux *aux);
typedef s32 pick_idle_fn(const struct cpumask *cpus_allowed, u64 flags,
			 const struct bpf_prog_aux *aux);
typedef void stop_one_fn(unsigned int cpu, cpu_stop_fn_t function, void *data,
			 struct cpu_stop_work *work);
typedef int stop_fn(cpu_stop_fn_t function, void *data, const struct cpumask *cpus);
typedef void unpoison_fn(const void *address, size_t size);

DEFINE_STATIC_CALL_NULL(lookup, lookup_fn);
DEFINE_STATIC_CALL_NULL(reg, reg_fn);
DEFINE_STATIC_CALL_NULL(unreg, unreg_fn);
DEFINE_STATIC_CALL_NULL(insert, insert_fn);
DEFINE_STATIC_CALL_NULL(kick, kick_fn);
DEFINE_STATIC_CALL_NULL(select, select_fn);
DEFINE_STATIC_CALL_NULL(take_idle, take_idle_fn);
DEFINE_STATIC_CALL_NULL(pick_idle, pick_idle_fn);
DEFINE_STATIC_CALL_NULL(stop_one, stop_one_fn);
DEFINE_STATIC_CALL_NULL(stop, stop_fn);
DEFINE_STATIC_CALL_NULL(unpoison, unpoison_fn);

/* What the helpers take for the program that calls them: one without a map. */
static const struct bpf_prog_aux caller;

#ifdef XK_EXT_SUB_SCHEDULERS
#define INSERT "scx_bpf_dsq_insert___v2"
#else
#define INSERT "scx_bpf_dispatch"
/* What removes the scheduler. */
static struct kthread_work *removal;
#endif

/* register_kprobe() resolves the name of a function. A disabled kprobe changes no text. */
static unsigned long find_lookup(void)
{
	static const char name[] = "kallsyms_lookup_name";
	struct kprobe kprobe = { .symbol_name = name, .flags = KPROBE_FLAG_DISABLED };
	char text[KSYM_SYMBOL_LEN];
	unsigned long address = 0;
	struct xk_symbol symbol;

	if (register_kprobe(&kprobe))
		return 0;
	/* kprobes may move the probe past an endbr64. */
	if (xk_symbol_at((unsigned long)kprobe.addr, text, &symbol) && !strcmp(symbol.name, name))
		address = (unsigned long)kprobe.addr - symbol.offset;
	unregister_kprobe(&kprobe);
	return address;
}

unsigned long xk_ext_address(const char *name)
{
	return static_call(lookup)(name);
}

static unsigned long find(const char *name, struct xk_error *error)
{
	unsigned long address = xk_ext_address(name);

	if (!address)
		xk_refuse(error, -ENOENT, "this kernel has no function %s", name);
	return address;
}

#define UPDATE(call, name) ({						\
	unsigned long address = find(name, error);			\
	if (address)							\
		static_call_update(call, (call##_fn *)address);		\
	address;							\
})

int xk_ext_init(struct xk_error *error)
{
	unsigned long address = find_lookup();

	if (!address)
		return xk_refuse(error, -ENOENT, "kprobes do not find kallsyms_lookup_name");
	static_call_update(lookup, (lookup_fn *)address);
	if (!UPDATE(reg, "bpf_scx_reg") || !UPDATE(unreg, "bpf_scx_unreg") ||
	    !UPDATE(insert, INSERT) || !UPDATE(kick, "scx_bpf_kick_cpu") ||
	    !UPDATE(select, "scx_bpf_select_cpu_dfl") ||
	    !UPDATE(take_idle, "scx_bpf_test_and_clear_cpu_idle") ||
	    !UPDATE(pick_idle, "scx_bpf_pick_idle_cpu") ||
	    !UPDATE(stop_one, "stop_one_cpu_nowait") ||
	    !UPDATE(stop, "stop_machine_cpuslocked"))
		return -ENOENT;
	if (IS_ENABLED(CONFIG_KASAN_STACK) && !UPDATE(unpoison, "__kasan_unpoison_range"))
		return -ENOENT;
#ifndef XK_EXT_SUB_SCHEDULERS
	removal = (struct kthread_work *)find("scx_ops_disable_work", error);
	if (!removal)
		return -ENOENT;
#endif
	return 0;
}

int xk_ext_register(struct sched_ext_ops *ops)
{
	return static_call(reg)(ops, NULL);
}

/*
 * Linux 6.12 removes whichever scheduler is registered. If it has ejected ours, that may be another
 * one, and only the end of the removal is awaited.
 */
void xk_ext_unregister(struct sched_ext_ops *ops, bool ended)
{
#ifndef XK_EXT_SUB_SCHEDULERS
	if (ended) {
		kthread_flush_work(removal);
		return;
	}
#endif
	static_call(unreg)(ops, NULL);
}

void xk_ext_run(struct task_struct *task, u64 slice_ns, u64 enq_flags)
{
	static_call(insert)(task, SCX_DSQ_LOCAL, slice_ns, enq_flags, &caller);
}

void xk_ext_kick(int cpu, bool preempt)
{
	static_call(kick)(cpu, preempt ? SCX_KICK_PREEMPT : SCX_KICK_IDLE, &caller);
}

int xk_ext_select(struct task_struct *task, int prev_cpu, u64 wake_flags, bool *idle)
{
#ifndef XK_EXT_SUB_SCHEDULERS
	/* Linux 6.12 ejects a scheduler that asks in another callback. */
	if (!(current->scx.kf_mask & SCX_KF_SELECT_CPU))
		return prev_cpu;
#endif
	return static_call(select)(task, prev_cpu, wake_flags, idle, &caller);
}

int xk_ext_select_of(struct task_struct *task, int prev_cpu, const struct cpumask *cpus)
{
	if (cpumask_test_cpu(prev_cpu, cpus) && static_call(take_idle)(prev_cpu, &caller))
		return prev_cpu;
	return static_call(pick_idle)(cpus, 0, &caller);
}

void xk_ext_interrupt(int (*function)(void *data), struct cpu_stop_work *work)
{
	static_call(stop_one)(smp_processor_id(), function, NULL, work);
}

int xk_ext_stop(int (*function)(void *data), void *data)
{
	return static_call(stop)(function, data, cpu_online_mask);
}

void xk_ext_forget_frames(unsigned long from, unsigned long to)
{
	if (IS_ENABLED(CONFIG_KASAN_STACK))
		static_call(unpoison)((const void *)from, to - from);
}

NOKPROBE_SYMBOL(xk_ext_forget_frames);
