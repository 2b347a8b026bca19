/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The threads of xk_atomic.ko: their options and their results. main.c receives commands, threads.c
 * starts threads, and spans.c contains what they do. ambush.c interferes with transitions.
 * exiting.c keeps threads inside while they exit.
 */
#ifndef _XK_ATOMIC_H
#define _XK_ATOMIC_H

#include <linux/completion.h>
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/prandom.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/types.h>
#include <linux/wait.h>

#define XK_ATOMIC_DEFAULT 32

/*
 * A constant. User space finds it as a move of 32 before a no-op of five bytes. The site is this
 * no-op, which kprobes can replace by a jump. Because of the first no-op, no probe before the move
 * can become a jump over it. So a patch needs no guards, whose registration takes most of the time
 * of arming.
 */
static __always_inline int xk_atomic_constant(void)
{
	int value;

	asm volatile(".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n\t"
		     "movl $32, %0\n\t"
		     ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
		     : "=a" (value) : : "memory");
	return value;
}

/* Functions in which two values of a constant could meet. */
enum xk_atomic_span {
	XK_ATOMIC_BALANCE,	/* added on entry, subtracted on exit */
	XK_ATOMIC_AGREE,	/* two critical spans that must agree */
	XK_ATOMIC_OBJECT,	/* put into an object, consumed by a callee */
	XK_ATOMIC_LATER,	/* consumed by a later call of the same frame */
	XK_ATOMIC_RECURSE,	/* in each frame of a recursion */
	XK_ATOMIC_SOFTIRQ,	/* consumed by a softirq on top of the frame */
	XK_ATOMIC_HARDIRQ,	/* ... by a hard interrupt on top of it */
	XK_ATOMIC_NMI,		/* ... by an NMI on top of it */
	XK_ATOMIC_SLEEP,	/* held by a thread that sleeps */
	XK_ATOMIC_ELSEWHERE,	/* consumed by a softirq in any thread */
	XK_ATOMIC_DESCEND,	/* at the end of a chain of calls */
	XK_ATOMIC_HOLD,		/* held by a process until it is released */
	XK_ATOMIC_STOP,		/* read in an NMI while the machine is stopped */
	XK_ATOMIC_SPANS
};

/* The behaviour of threads. May change while they run. */
struct xk_atomic_options {
	unsigned int spans;	/* mask of the spans that they enter */
	unsigned int inside;	/* one of this many rounds is switched out inside a span */
	unsigned int depth;	/* of calls, in the last two spans */
	unsigned int sleep;	/* microseconds in XK_ATOMIC_SLEEP */
	unsigned int work;	/* microseconds of work inside a span */
	unsigned int pause;	/* microseconds between rounds */
};

extern struct xk_atomic_options xk_atomic_options;

struct xk_atomic_count {
	u64 rounds;
	u64 violations;		/* two different values met */
	u64 defaults;		/* ... and one was the default */
	int last[2];
};

/* A thread, and what its interrupts store for it. */
struct xk_atomic_thread {
	struct task_struct *task;
	struct rnd_state random;
	bool outside;		/* this round is not switched out inside */
	int object;
	int seen;
	struct tasklet_struct above;
	struct tasklet_struct elsewhere;
	struct irq_work work;
	struct completion done;
	struct xk_atomic_count counts[XK_ATOMIC_SPANS];
};

/* main.c */
void xk_atomic_judge(struct xk_atomic_count *count, int first, int second);
int xk_atomic_hold_once(unsigned int ms);

/* ambush.c */
int xk_atomic_ambush(unsigned int us, bool text);
void xk_atomic_ambush_sum(struct xk_atomic_count *sum);
int xk_atomic_in_stop(void);

/* exiting.c */
int xk_atomic_detain(bool on);
unsigned int xk_atomic_detained(void);

/* registering.c */
int xk_atomic_register(unsigned int nr);

/* stall.c */
enum xk_atomic_stall {
	XK_ATOMIC_STALL_NOWHERE = 0,
	XK_ATOMIC_STALL_REGISTERS = 1,	/* where it registers a probe */
	XK_ATOMIC_STALL_ARMS = 2,	/* where xk.ko arms a module */
};

int xk_atomic_stall(enum xk_atomic_stall where);
bool xk_atomic_stalled(void);
int xk_atomic_probe(bool on);

/* unreadable.S */
int xk_atomic_unreadable(unsigned int ms, int values[2]);

/* threads.c */
int xk_atomic_start(unsigned int nr);
void xk_atomic_stop(void);
void xk_atomic_sum(struct xk_atomic_count *sums);
unsigned int xk_atomic_running(void);
int xk_atomic_leave(void);

/* spans.c */
extern const char *const xk_atomic_names[XK_ATOMIC_SPANS];

void xk_atomic_prepare(struct xk_atomic_thread *thread);
void xk_atomic_forget(struct xk_atomic_thread *thread);
void xk_atomic_round(struct xk_atomic_thread *thread);
void xk_atomic_release(void);
int xk_atomic_spans_init(void);
void xk_atomic_spans_exit(void);

/* Global, so that user space finds them. spans.c describes them. */
void xk_atomic_balance(struct xk_atomic_thread *thread);
int xk_atomic_first(void);
int xk_atomic_second(void);
void xk_atomic_agree(struct xk_atomic_thread *thread);
void xk_atomic_consume(struct xk_atomic_thread *thread, enum xk_atomic_span span);
void xk_atomic_object(struct xk_atomic_thread *thread);
void xk_atomic_later(struct xk_atomic_thread *thread);
void xk_atomic_recurse(struct xk_atomic_thread *thread, unsigned int depth);
int xk_atomic_in_softirq(void);
void xk_atomic_softirq(struct xk_atomic_thread *thread);
int xk_atomic_in_hardirq(void);
void xk_atomic_hardirq(struct xk_atomic_thread *thread);
int xk_atomic_in_nmi(void);
void xk_atomic_nmi(struct xk_atomic_thread *thread);
void xk_atomic_sleep(struct xk_atomic_thread *thread);
int xk_atomic_in_elsewhere(void);
void xk_atomic_elsewhere(struct xk_atomic_thread *thread);
void xk_atomic_descend(struct xk_atomic_thread *thread, unsigned int depth);
int xk_atomic_value(void);
int xk_atomic_hold(unsigned int ms, int values[2]);
int xk_atomic_rest(unsigned int ms, int values[2]);
void xk_atomic_exit_inside(void);

#endif /* _XK_ATOMIC_H */
