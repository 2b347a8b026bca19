/* SPDX-License-Identifier: GPL-2.0-only */
/* What detours and patches need of the kernel, and the kernel does not export. */
#ifndef _XK_INTERNAL_H
#define _XK_INTERNAL_H

#include <linux/stop_machine.h>
#include <linux/types.h>
#include <asm/insn.h>

struct kprobe;
struct task_struct;

/* In the running kernel. */
struct xk_addresses {
	unsigned long start;
	unsigned long end;	/* after the last byte */
};

/* Finds it. Not finding it is no error of xk.ko: detours and patches are refused then. */
void xk_internal_init(void);

/* Anything else by name; 0: it is not there. */
unsigned long xk_internal_find(const char *name);

/* The name of what this kernel does not have; NULL when nothing is missing. */
const char *xk_internal_missing(void);

/* Nobody else changes text, and no CPU comes or goes. */
void xk_text_lock(void);
void xk_text_unlock(void);

/* In a stop under the text lock: whether text can be written without sleeping. */
bool xk_text_is_free(void);

/* The others need the text lock, or to be in a stop under it. */
void xk_text_write(unsigned long address, const void *bytes, size_t len);
int xk_stop_machine_locked(cpu_stop_fn_t function, void *data);

/* Of the instruction at `bytes`; negative when it is none. */
int xk_insn_decode(struct insn *insn, const void *bytes, int len);

/* An access to memory at this address may fault, and the kernel goes on elsewhere. */
bool xk_may_fault(unsigned long address);

/* The kprobe there, armed or not; or NULL. With preemption disabled, or in a stop. */
struct kprobe *xk_kprobe_at(unsigned long address);

/* The function in which kprobes are registered; an address in it. */
unsigned long xk_registering_start(void);
unsigned long xk_registering_end(void);

static inline bool xk_is_registering(unsigned long address)
{
	return address >= xk_registering_start() && address < xk_registering_end();
}

/* After try_get_task_stack(). */
void xk_put_task_stack(struct task_struct *task);

static inline bool xk_is_probed(unsigned long address)
{
	return xk_kprobe_at(address);
}

/* far.S: function(a, b, c, d), by address. */
unsigned long xk_far(unsigned long a, unsigned long b, unsigned long c, unsigned long d,
		     unsigned long function);

#endif /* _XK_INTERNAL_H */
