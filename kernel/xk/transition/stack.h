/* SPDX-License-Identifier: GPL-2.0-only */
/* Where threads are: their stacks; stack.c. */
#ifndef _XK_STACK_H
#define _XK_STACK_H

#include <linux/sched.h>
#include <linux/types.h>

#define XK_STACK_DEPTH 24

/* One function on a stack. */
struct xk_frame {
	unsigned long address;		/* at which it continues */
	bool interrupted;		/* by an interrupt, so not in a call */
	bool calls_interrupted;		/* the function that it called was interrupted */
	bool in_stub;			/* of xk.ko: see entry.S */
};

/* A thread and its stack, for a report. */
struct xk_blocker {
	pid_t pid;
	char comm[TASK_COMM_LEN];
	bool unreliable;		/* its stack could not be read to the end */
	bool stands;			/* a frame matches what is looked for */
	unsigned int nr;
	unsigned long stack[XK_STACK_DEPTH];
};

/* A test of frames: whether a frame matches. */
struct xk_look {
	bool (*stands)(const struct xk_frame *frame, void *data);
	void *data;
};

/*
 * Threads that were outside at a look without a stop, each with a reference, ascending by address.
 * As long as the number of switches of such a thread is the same, it has not run.
 */
struct xk_outside {
	unsigned int nr;
	unsigned int capacity;
	struct xk_outside_thread {
		struct task_struct *task;
		unsigned long switches;
	} at[] __counted_by(capacity);
};

/*
 * Whether a thread that does not run is inside, or may be because its stack is unreadable. Fills
 * `seen`, except for the number and name of the thread.
 */
bool xk_stack_look(struct task_struct *task, const struct xk_look *look,
		   struct xk_blocker *seen);

/* The same in a stop. Counts the stack for the statistics of stops. */
bool xk_stack_look_stopped(struct task_struct *task, const struct xk_look *look,
			   struct xk_blocker *seen);

/* The same while the machine runs: true if the thread is switched out and inside. */
bool xk_stack_look_running(struct task_struct *task, const struct xk_look *look,
			   struct xk_blocker *seen);

enum xk_stack_read {
	XK_STACK_READ,
	XK_STACK_UNREADABLE,
	XK_STACK_RUNS,		/* now, or during the look */
};

/* Whether the stack of a thread can be read, while the machine runs. */
enum xk_stack_read xk_stack_read_running(struct task_struct *task, const struct xk_look *look,
					 struct xk_blocker *seen);

/* Whether the thread is switched out and has a stack. A thread without a stack has exited. */
bool xk_has_stack(const struct task_struct *task);

/*
 * Calls `visit` for every thread, including exiting ones. In a stop, or under rcu_read_lock().
 * Returns false if there may be more exiting threads.
 */
bool xk_visit_threads(void (*visit)(struct task_struct *task, void *data), void *data);

/* Returns the number of threads, plus some for threads that are created meanwhile. */
unsigned int xk_count_threads(void);

/*
 * Looks at all switched-out threads while other threads run. Returns the threads that were outside,
 * or NULL without memory. `before` is the result of an earlier look with the same test, or NULL; it
 * is freed. `inside`, unless NULL, is called for each thread that is inside. May sleep.
 */
struct xk_outside *xk_look_at_all(const struct xk_look *look, struct xk_outside *before,
				  void (*inside)(struct task_struct *task,
						 const struct xk_blocker *seen, void *data),
				  void *data);

/* Drops the references and frees the list. NULL is allowed. */
void xk_outside_free(struct xk_outside *outside);

/* In a stop: whether the thread was outside at the look and has not run since. */
bool xk_is_outside(const struct xk_outside *outside, const struct task_struct *task);

#endif /* _XK_STACK_H */
