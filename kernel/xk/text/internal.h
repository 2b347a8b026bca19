/* SPDX-License-Identifier: GPL-2.0-only */
/* Unexported kernel functions and objects that detours and patches need: internal.c. */
#ifndef _XK_INTERNAL_H
#define _XK_INTERNAL_H

#include <linux/stop_machine.h>
#include <linux/types.h>
#include <asm/insn.h>

struct kprobe;
struct task_struct;

/* A range of addresses in the running kernel. */
struct xk_addresses {
	unsigned long start;
	unsigned long end;	/* after the last byte */
};

/*
 * Looks all of them up. If one is missing, xk.ko still loads, and refuses detours and patches.
 * Called once, by xk_init(); may sleep.
 */
void xk_internal_init(void);

/* Returns the address of any other symbol, or 0 if it does not exist. */
unsigned long xk_internal_find(const char *name);

/* Returns the name of the first missing symbol, or NULL if none is missing. */
const char *xk_internal_missing(void);

/*
 * kprobe_mutex. While it is held, get_kprobe() finds every kprobe for which an instruction was
 * copied: kprobes hold it from the copy until the kprobe is in their table. Taken before the text
 * lock. Its holder may wait for a grace period of RCU-tasks (kprobe_optimizer()), as may every
 * caller of register_kprobe(). May sleep.
 */
void xk_probes_lock(void);
void xk_probes_unlock(void);

/*
 * The text lock: text_mutex, inside of cpus_read_lock(). While it is held, no one else changes
 * text, and no CPU goes online or offline. May sleep.
 */
void xk_text_lock(void);
void xk_text_unlock(void);

/* In a stop under the text lock: whether text can be written without sleeping. */
bool xk_text_is_free(void);

/*
 * Both functions need the text lock. xk_text_write() may also be called in a stop made under that
 * lock. xk_stop_machine_locked() runs `function` on every online CPU; returns as stop_machine().
 */
void xk_text_write(unsigned long address, const void *bytes, size_t len);
int xk_stop_machine_locked(cpu_stop_fn_t function, void *data);

/* Decodes the instruction at `bytes`. Returns a negative value if there is none. In any context. */
int xk_insn_decode(struct insn *insn, const void *bytes, int len);

/* Whether a memory access at this address may fault and has an entry in the exception tables. */
bool xk_may_fault(unsigned long address);

/*
 * Returns the kprobe at this address, armed or not, or NULL. With preemption disabled, or in a
 * stop.
 */
struct kprobe *xk_kprobe_at(unsigned long address);

/* put_task_stack(). After try_get_task_stack(). */
void xk_put_task_stack(struct task_struct *task);

/* Whether there is a kprobe at this address. Context as xk_kprobe_at(). */
static inline bool xk_is_probed(unsigned long address)
{
	return xk_kprobe_at(address);
}

/* far.S: calls function(a, b, c, d) by address. */
unsigned long xk_far(unsigned long a, unsigned long b, unsigned long c, unsigned long d,
		     unsigned long function);

#endif /* _XK_INTERNAL_H */
