// SPDX-License-Identifier: GPL-2.0-only
/*
 * The benchmark compares xk with this kfunc, by which an eBPF kprobe program changes a register of
 * the interrupted code. It sets a single register and checks nothing, which is less than a real
 * kfunc would have to do.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>
#include <linux/ptrace.h>

#include "xk_bench.h"

__bpf_kfunc_start_defs();

/* The suffix makes the verifier accept the program's context here. */
__bpf_kfunc int xk_bench_set_ax(struct pt_regs *regs__ign, u64 value)
{
	regs__ign->ax = value;
	return 0;
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(kfuncs)
BTF_ID_FLAGS(func, xk_bench_set_ax)
BTF_KFUNCS_END(kfuncs)

static const struct btf_kfunc_id_set kfunc_set = {
	.owner = THIS_MODULE,
	.set = &kfuncs,
};

static int __init xk_bench_init(void)
{
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_KPROBE, &kfunc_set);
}

/* The registration ends with the BTF of the module. */
static void __exit xk_bench_exit(void)
{
}

module_init(xk_bench_init);
module_exit(xk_bench_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A kfunc that writes a register, for comparison");
