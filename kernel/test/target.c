// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module for tests. Reading /proc/xk_target calls every function of target_text.S and the other
 * assembly files, and prints what each returned, one per line. Other lines are what a function
 * returned inside the handler of a kprobe, and the first bytes of xk_target_value(),
 * xk_target_compare() and xk_target_pair().
 *
 * Writing to it takes one command:
 *
 *	bad, good	the pointer that xk_target_memory() does not use becomes invalid, valid
 *	N		sets the global variable
 *	limit N		sets a limit
 *	fixed N		tries to write a constant, which is read-only
 *	probe SYMBOL OFFSET enabled|disabled
 *			registers a kprobe, as someone else might
 *	enable probe	enables it
 *	no probe	removes it
 *	poke N		writes N into the code of xk_target_value()
 *	oops		causes an oops
 */
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pgtable.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "target.h"

int xk_target_bias = 40;
int xk_target_biases[2] = { 1000, 2000 };
DEFINE_PER_CPU(int, xk_target_cpu_bias);

struct xk_target_limits xk_target_limits = {
	.quad = 32, .word = 32, .half = 32, .byte = 32,
};

int xk_target_sealed __ro_after_init = 32;
const int xk_target_fixed = 32;

/* The values during initialisation of the module. */
static int value_at_init;
static u32 limit_at_init;

static int *other;
static int healthy = 40;

/* Unlike the functions in assembly, other tracers may probe this one. */
static noinline int xk_target_traced(int x)
{
	return x * 32;
}

/* A probe of this module. Its handler calls xk_target_value(). */
static int value_in_handler;

static noinline void xk_target_probed(void)
{
	barrier();
}

static int handler(struct kprobe *kprobe, struct pt_regs *regs)
{
	value_in_handler = xk_target_value();
	return 0;
}

static struct kprobe probe = {
	.symbol_name = "xk_target_probed",
	.pre_handler = handler,
};

/* The probe of someone else: where it is, and how often it was hit. */
static unsigned int foreign_hits;
static char foreign_symbol[64];
static struct kprobe foreign;

static int foreign_handler(struct kprobe *kprobe, struct pt_regs *regs)
{
	foreign_hits++;
	return 0;
}

static void remove_foreign(void)
{
	if (foreign.pre_handler)
		unregister_kprobe(&foreign);
	memset(&foreign, 0, sizeof(foreign));
}

static int add_foreign(unsigned int offset, bool enabled)
{
	int ret;

	remove_foreign();
	foreign.symbol_name = foreign_symbol;
	foreign.offset = offset;
	foreign.pre_handler = foreign_handler;
	foreign.flags = enabled ? 0 : KPROBE_FLAG_DISABLED;
	ret = register_kprobe(&foreign);
	if (ret)
		foreign.pre_handler = NULL;
	return ret;
}

/*
 * Changes code without a probe: writes another number into the first instruction of
 * xk_target_value().
 */
static int poke(int number)
{
	unsigned long at = (unsigned long)xk_target_value + 1;
	struct page *page = vmalloc_to_page((void *)at);
	void *alias;

	/* The number must not cross a page. */
	if (!page || offset_in_page(at) > PAGE_SIZE - sizeof(number))
		return -EINVAL;
	alias = vmap(&page, 1, VM_MAP, PAGE_KERNEL);
	if (!alias)
		return -ENOMEM;
	memcpy(alias + offset_in_page(at), &number, sizeof(number));
	vunmap(alias);
	return 0;
}

static void show_limits(struct seq_file *file)
{
	seq_printf(file, "limits %llu %u %u %u\n", READ_ONCE(xk_target_limits.quad),
		   READ_ONCE(xk_target_limits.word), READ_ONCE(xk_target_limits.half),
		   READ_ONCE(xk_target_limits.byte));
	seq_printf(file, "sealed %d\n", READ_ONCE(xk_target_sealed));
	seq_printf(file, "fixed %d\n", READ_ONCE(xk_target_fixed));
}

static int show(struct seq_file *file, void *unused)
{
	int forty = 40, stored = 0;

	seq_printf(file, "value %d\n", xk_target_value());
	seq_printf(file, "twice %d\n", xk_target_twice());
	seq_printf(file, "compare %d\n", xk_target_compare(40));
	seq_printf(file, "memory %d\n", xk_target_memory(&forty, other));
	xk_target_store(&stored);
	seq_printf(file, "store %d\n", stored);
	seq_printf(file, "select %d %d\n", xk_target_select(1), xk_target_select(0));
	seq_printf(file, "traced %d\n", xk_target_traced(stored));
	seq_printf(file, "global %d\n", xk_target_global());
	seq_printf(file, "above %d\n", xk_target_above());
	seq_printf(file, "array %d %d\n", xk_target_array(0), xk_target_array(1));
	preempt_disable();
	seq_printf(file, "cpu%d %d\n", smp_processor_id(), xk_target_per_cpu());
	preempt_enable();
	seq_printf(file, "twins %d %d\n", xk_target_twin_here(), xk_target_twin_there());
	seq_printf(file, "many %d\n", xk_target_many());
	seq_printf(file, "several %d\n", xk_target_several());
	seq_printf(file, "branch %d\n", xk_target_branch(40));
	seq_printf(file, "roomy %d %d\n", xk_target_roomy(40), xk_target_roomy(4));
	seq_printf(file, "tight %d %d\n", xk_target_tight(40), xk_target_tight(4));
	seq_printf(file, "brief %d %d\n", xk_target_brief(40), xk_target_brief(4));
	if (boot_cpu_has(X86_FEATURE_SMAP))
		seq_printf(file, "access %d\n", xk_target_access(current->mm->arg_start));
	seq_printf(file, "identity %d\n", xk_target_identity(4));
	seq_printf(file, "call %d\n", xk_target_call());
	seq_printf(file, "padded %d\n", xk_target_padded());
	seq_printf(file, "into %d\n", xk_target_into(1));
	seq_printf(file, "short %d\n", xk_target_short());
	seq_printf(file, "careful %d\n", xk_target_careful(&forty));
	seq_printf(file, "forbidden %d\n", xk_target_forbidden());
	seq_printf(file, "displaced %d\n", xk_target_displaced(4));
	seq_printf(file, "registers %d\n", xk_target_registers());
	seq_printf(file, "untouchable %d\n", xk_target_untouchable());
	seq_printf(file, "skip %d\n", xk_target_skip(40));
	seq_printf(file, "pair %d %d\n", xk_target_pair(40, 20), xk_target_pair(20, 40));
	xk_target_probed();
	seq_printf(file, "handler %d\n", value_in_handler);
	seq_printf(file, "foreign %u\n", foreign_hits);
	seq_printf(file, "text %16ph\n", xk_target_value);
	seq_printf(file, "bytes %16ph\n", xk_target_compare);
	seq_printf(file, "pairtext %12ph\n", xk_target_pair);
	seq_printf(file, "init %d %u\n", value_at_init, limit_at_init);
	show_limits(file);
	xk_target_flags_show(file);
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static int write_fixed(int number)
{
	__put_kernel_nofault(&xk_target_fixed, &number, int, fault);
	return 0;
fault:
	return -EFAULT;
}

static ssize_t write(struct file *file, const char __user *text, size_t len, loff_t *at)
{
	char words[64] = {}, state[16];
	unsigned int offset;
	int number, ret = 0;

	if (len >= sizeof(words))
		return -EINVAL;
	if (copy_from_user(words, text, len))
		return -EFAULT;
	if (sscanf(words, "fixed %d", &number) == 1)
		ret = write_fixed(number);
	else if (sscanf(words, "probe %63s %u %15s", foreign_symbol, &offset, state) == 3)
		ret = add_foreign(offset, !strcmp(state, "enabled"));
	else if (sscanf(words, "poke %d", &number) == 1)
		ret = poke(number);
	else if (!strncmp(words, "oops", 4))
		ret = READ_ONCE(*(int *)GUARD_HOLE_BASE_ADDR);
	else if (!strncmp(words, "enable probe", 12))
		ret = enable_kprobe(&foreign);
	else if (!strncmp(words, "no probe", 8))
		remove_foreign();
	else if (sscanf(words, "limit %d", &number) == 1)
		WRITE_ONCE(xk_target_limits.word, number);
	else if (!kstrtoint(words, 0, &number))
		xk_target_bias = number;
	else
		/* A kernel address at which nothing is ever mapped. */
		other = words[0] == 'b' ? (int *)GUARD_HOLE_BASE_ADDR : &healthy;
	return ret ?: len;
}

static const struct proc_ops target_ops = {
	.proc_open = open,
	.proc_read = seq_read,
	.proc_write = write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int __init target_init(void)
{
	int cpu, ret;

	ret = register_kprobe(&probe);
	if (ret)
		return ret;
	other = &healthy;
	for_each_possible_cpu(cpu)
		per_cpu(xk_target_cpu_bias, cpu) = 100 * (cpu + 1);
	value_at_init = xk_target_value();
	limit_at_init = READ_ONCE(xk_target_limits.word);
	ret = xk_target_flags_init();
	if (!ret && proc_create("xk_target", 0600, NULL, &target_ops))
		return 0;
	if (!ret)
		xk_target_flags_exit();
	unregister_kprobe(&probe);
	return ret ?: -ENOMEM;
}

static void __exit target_exit(void)
{
	remove_proc_entry("xk_target", NULL);
	remove_foreign();
	xk_target_flags_exit();
	unregister_kprobe(&probe);
}

module_init(target_init);
module_exit(target_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Constants for tests");
