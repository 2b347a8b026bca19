/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For extensions (docs/flex.md): the terminate word. `xk flex` lets each loop that the verifier
 * refuses look at it; a run that finds it set leaves with the default of its hook.
 *
 * Include vmlinux.h or linux/types.h, and bpf/bpf_helpers.h before it. One file of an object
 * includes it.
 */
#ifndef _XK_FLEX_BPF_H
#define _XK_FLEX_BPF_H

/* In a section, and so in a map, of its own: user space writes nothing else with it. */
volatile __u64 xk_flex_terminate __attribute__((section(".data.xk_flex"), used)) = 0;

#endif
