/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel configuration that xk.ko requires, with the reasons. internal.c detects what may be
 * missing at run time.
 */
#ifndef _XK_REQUIRES_H
#define _XK_REQUIRES_H

#ifndef CONFIG_X86_64
#error "xk.ko is for x86-64: it decodes and writes its instructions"
#endif

#ifndef CONFIG_UNWINDER_ORC
#error "xk.ko needs CONFIG_UNWINDER_ORC: stacks could not be read, and no transition would end"
#endif

#ifndef CONFIG_KPROBES
#error "xk.ko needs CONFIG_KPROBES: it could not reach any site"
#endif

#ifndef CONFIG_KRETPROBE_ON_RETHOOK
#error "xk.ko needs CONFIG_KRETPROBE_ON_RETHOOK: policies could not tell activations apart"
#endif

#ifndef CONFIG_DYNAMIC_FTRACE_WITH_ARGS
#error "xk.ko needs CONFIG_DYNAMIC_FTRACE_WITH_ARGS: exiting threads could be missed"
#endif

#ifndef CONFIG_TRACEPOINTS
#error "xk.ko needs CONFIG_TRACEPOINTS: exiting threads could be missed"
#endif

#ifndef CONFIG_KALLSYMS_ALL
#error "xk.ko needs CONFIG_KALLSYMS_ALL: text_mutex and bpf_prog_active could not be found"
#endif

#ifndef CONFIG_BPF_EVENTS
#error "xk.ko needs CONFIG_BPF_EVENTS: the kernel would have no programs of type kprobe"
#endif

/* The option was renamed. FineIBT is one implementation of it. */
#if defined(CONFIG_CFI_CLANG) || defined(CONFIG_CFI)
#error "xk.ko does not support CONFIG_CFI: calls of generated code would fault"
#endif

#endif /* _XK_REQUIRES_H */
