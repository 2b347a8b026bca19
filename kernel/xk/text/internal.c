// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds unexported symbols by name, and calls functions by address. A function has the type that
 * the kernel's headers declare: xk.ko was built with these headers, and loads only into their
 * kernel.
 */
#include <linux/cpu.h>
#include <linux/extable.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/memory.h>
#include <linux/mm.h>
#include <linux/rwsem.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <asm/text-patching.h>

#include "text/int3.h"
#include "text/internal.h"
#include "text/symbol.h"

enum {
	TEXT_POKE,
	TEXT_MUTEX,
	KPROBE_MUTEX,
	STOP_MACHINE,
	INSN_DECODE,
	SEARCH_EXTABLE,
	GET_KPROBE,
	PUT_TASK_STACK,
	INIT_MM,
	NR_INTERNAL,
};

static const char *const names[NR_INTERNAL] = {
	[TEXT_POKE] = "text_poke_kgdb",
	[TEXT_MUTEX] = "text_mutex",
	[KPROBE_MUTEX] = "kprobe_mutex",
	[STOP_MACHINE] = "stop_machine_cpuslocked",
	[INSN_DECODE] = "insn_decode",
	[SEARCH_EXTABLE] = "search_exception_tables",
	[GET_KPROBE] = "get_kprobe",
	[PUT_TASK_STACK] = "put_task_stack",
	[INIT_MM] = "init_mm",
};

static unsigned long addresses[NR_INTERNAL];
static const char *missing = "kallsyms_lookup_name";

/* register_kprobe() resolves the name of a function. A disabled kprobe changes no text. */
static unsigned long find_lookup(void)
{
	struct kprobe kprobe = {
		.symbol_name = missing,
		.flags = KPROBE_FLAG_DISABLED,
	};
	char text[KSYM_SYMBOL_LEN];
	unsigned long address = 0;
	struct xk_symbol symbol;

	if (register_kprobe(&kprobe))
		return 0;
	/* kprobes may move the probe past an endbr64. */
	if (xk_symbol_at((unsigned long)kprobe.addr, text, &symbol) &&
	    !strcmp(symbol.name, missing))
		address = (unsigned long)kprobe.addr - symbol.offset;
	unregister_kprobe(&kprobe);
	return address;
}

static unsigned long lookup;

unsigned long xk_internal_find(const char *name)
{
	return lookup ? xk_far((unsigned long)name, 0, 0, 0, lookup) : 0;
}

void xk_internal_init(void)
{
	unsigned int i;

	lookup = find_lookup();
	if (!lookup)
		return;
	for (i = 0; i < NR_INTERNAL; i++) {
		addresses[i] = xk_internal_find(names[i]);
		missing = names[i];
		if (!addresses[i])
			return;
	}
	missing = xk_int3_init();
}

const char *xk_internal_missing(void)
{
	return missing;
}

/* A static object of kernel/kprobes.c: no header declares it. */
static struct mutex *probes_lock(void)
{
	return (struct mutex *)addresses[KPROBE_MUTEX];
}

void xk_probes_lock(void)
{
	mutex_lock(probes_lock());
}

void xk_probes_unlock(void)
{
	mutex_unlock(probes_lock());
}

static struct mutex *text_lock(void)
{
	static_assert(__same_type(text_mutex, struct mutex));
	return (struct mutex *)addresses[TEXT_MUTEX];
}

/* The kernel always takes them in this order. */
void xk_text_lock(void)
{
	cpus_read_lock();
	mutex_lock(text_lock());
}

void xk_text_unlock(void)
{
	mutex_unlock(text_lock());
	cpus_read_unlock();
}

/*
 * text_poke() asserts that its caller holds text_mutex. In a stop, the stopper writes while the
 * holder of the lock waits. text_poke_kgdb() is for the debugger and asserts nothing.
 */
void notrace xk_text_write(unsigned long address, const void *bytes, size_t len)
{
	static_assert(__same_type(text_poke_kgdb, void *(void *, const void *, size_t)));
	xk_far(address, (unsigned long)bytes, len, 0, addresses[TEXT_POKE]);
}

/*
 * From 7.3 on, a write to module text takes this lock for reading. It sleeps if another task holds
 * the lock for writing or waits to do so; set_memory_rox() does this to make large pages. Nothing
 * may sleep in a stop, and no other task can take the lock between this check and the write,
 * because no other task runs.
 */
bool xk_text_is_free(void)
{
	static_assert(__same_type(init_mm, struct mm_struct));
	struct mm_struct *mm = (struct mm_struct *)addresses[INIT_MM];

	if (!down_read_trylock(&mm->mmap_lock))
		return false;
	up_read(&mm->mmap_lock);
	return true;
}

int xk_stop_machine_locked(cpu_stop_fn_t function, void *data)
{
	static_assert(__same_type(stop_machine_cpuslocked,
				  int(cpu_stop_fn_t, void *, const struct cpumask *)));
	return xk_far((unsigned long)function, (unsigned long)data,
		      (unsigned long)cpu_online_mask, 0, addresses[STOP_MACHINE]);
}

int xk_insn_decode(struct insn *insn, const void *bytes, int len)
{
	static_assert(__same_type(insn_decode,
				  int(struct insn *, const void *, int, enum insn_mode)));
	return xk_far((unsigned long)insn, (unsigned long)bytes, len, INSN_MODE_64,
		      addresses[INSN_DECODE]);
}

bool xk_may_fault(unsigned long address)
{
	static_assert(__same_type(search_exception_tables,
				  const struct exception_table_entry *(unsigned long)));
	return xk_far(address, 0, 0, 0, addresses[SEARCH_EXTABLE]);
}

struct kprobe *notrace xk_kprobe_at(unsigned long address)
{
	static_assert(__same_type(get_kprobe, struct kprobe *(void *)));
	return (struct kprobe *)xk_far(address, 0, 0, 0, addresses[GET_KPROBE]);
}

void xk_put_task_stack(struct task_struct *task)
{
	xk_far((unsigned long)task, 0, 0, 0, addresses[PUT_TASK_STACK]);
}
